"""The gateway's HTTP face: routes, and errors in one shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import Body, FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.answers import Answers
from services.gateway.bodylimits import BodyLimits
from services.gateway.caller import with_caller
from services.gateway.disconnect import unless_gone
from services.gateway.faults import shown
from services.gateway.invalid import explain
from services.gateway.metrics import GatewayMetrics
from services.gateway.pool import Pool, Served
from services.gateway.requestid import RequestIds
from services.gateway.responses import ModelBody, ModelList, json_response
from services.gateway.schema import ChatRequest, CompletionRequest
from services.gateway.stream import Asked, EventStream, complete
from services.gateway.tokens import Tokenizing, add_tokens
from services.gateway.translate import chat_asked, completion_asked
from starsd import __version__
from starsd.errors import UnknownModelError
from starsd.httperrors import error_response, exception_handlers
from starsd.metrics import Outcome
from starsd.service import Readiness, health_routes
from starsd.settings.gateway import GatewaySettings

CLIENT_LEFT = 499
"""nginx's status for it; nobody is there to read it."""


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    """Every error, of every route."""

    error: ErrorDetail


def create_app(
    settings: GatewaySettings,
    pool: Pool,
    answers: Answers,
    tokenizing: Tokenizing,
    metrics: GatewayMetrics,
    readiness: Callable[[], Readiness],
) -> FastAPI:
    """The app of the main port."""

    async def on_invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        metrics.requests.ended(Outcome.REJECTED)
        return error_response(explain(error.errors()))

    app = FastAPI(
        title="StarSD",
        description="OpenAI-compatible completions from a star of targets and drafts.",
        exception_handlers={**exception_handlers(), RequestValidationError: on_invalid},
        responses={"default": {"model": ErrorReply}},
        redirect_slashes=False,
    )
    app.add_middleware(BodyLimits, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestIds)
    app.router.routes.extend(health_routes(readiness))
    _add_answers(app, settings, answers)
    _add_models(app, pool)
    add_tokens(app, tokenizing)
    return app


def _add_answers(app: FastAPI, settings: GatewaySettings, answers: Answers) -> None:
    async def respond(request: Request, asked: Asked, *, stream: bool) -> Response:
        asked = replace(asked, requests=[with_caller(r, request.headers) for r in asked.requests])
        if stream:
            return EventStream(answers, asked, settings.keepalive_s, settings.request_timeout_s)
        done = await unless_gone(request.receive, complete(answers, asked))
        if done is None:
            return Response(status_code=CLIENT_LEFT)
        return json_response(done, done.starsd.headers)

    @app.post("/v1/chat/completions")
    async def create_chat_completion(
        body: Annotated[ChatRequest, Body()], request: Request
    ) -> Response:
        """Answer a conversation; with ``stream`` as server-sent events."""
        asked = chat_asked(body, request.state.request_id)
        return await respond(request, asked, stream=body.stream)

    @app.post("/v1/completions")
    async def create_completion(
        body: Annotated[CompletionRequest, Body()], request: Request
    ) -> Response:
        """Continue texts; with ``stream`` as server-sent events."""
        asked = completion_asked(body, request.state.request_id)
        return await respond(request, asked, stream=body.stream)


def _add_models(app: FastAPI, pool: Pool) -> None:
    created = int(time.time())

    def model(name: str, served: Served) -> ModelBody:
        return ModelBody(
            id=name, created=created, root=served.model, max_model_len=served.max_length
        )

    @app.get("/v1/models")
    async def list_models() -> Response:
        """The models that live targets serve, and their aliases."""
        return json_response(
            ModelList(data=tuple(model(*item) for item in sorted(pool.models.items())))
        )

    @app.get("/v1/models/{name:path}")
    async def retrieve_model(name: str) -> Response:
        """One model that a live target serves."""
        models = pool.models
        if name not in models:
            served = ", ".join(sorted(models)) or "no model right now"
            message = f"model={shown(name)}: no such model; served: {served}"
            raise UnknownModelError(message, param="model")
        return json_response(model(name, models[name]))

    @app.get("/version")
    async def version() -> dict[str, str]:
        """Of this server."""
        return {"version": __version__}
