"""The gateway's HTTP face: routes, and errors in one shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import Body, FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.answers import Answers
from services.gateway.bodylimits import BodyLimits
from services.gateway.chat import EventStream, Frames, complete
from services.gateway.disconnect import unless_gone
from services.gateway.faults import shown
from services.gateway.invalid import explain
from services.gateway.metrics import GatewayMetrics
from services.gateway.pool import Pool
from services.gateway.requestid import RequestIds
from services.gateway.responses import ModelBody, ModelList
from services.gateway.schema import ChatRequest
from services.gateway.translate import to_generate
from starsd.errors import UnknownModelError
from starsd.httperrors import error_response, exception_handlers
from starsd.metrics import Outcome
from starsd.protocol.events import Generate
from starsd.service import Readiness, health_routes
from starsd.settings import GatewaySettings


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
        description="OpenAI-compatible chat completions from a star of targets and drafts.",
        exception_handlers={**exception_handlers(), RequestValidationError: on_invalid},
        responses={"default": {"model": ErrorReply}},
        redirect_slashes=False,
    )
    app.add_middleware(BodyLimits, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestIds)
    app.router.routes.extend(health_routes(readiness))
    _add_chat(app, settings, answers)
    _add_models(app, pool)
    return app


def _add_chat(app: FastAPI, settings: GatewaySettings, answers: Answers) -> None:
    @app.post("/v1/chat/completions")
    async def create_chat_completion(
        body: Annotated[ChatRequest, Body()], request: Request
    ) -> Response:
        """Answer a conversation; with ``stream`` as server-sent events."""
        generate = to_generate(body, request.state.request_id)
        if body.stream:
            return _stream(settings, answers, generate, body.include_usage)
        done = await unless_gone(request.receive, complete(answers, generate))
        return _json(done) if done is not None else Response(status_code=CLIENT_LEFT)


CLIENT_LEFT = 499
"""nginx's status for it; nobody is there to read it."""


def _stream(
    settings: GatewaySettings, answers: Answers, generate: Generate, include_usage: bool
) -> EventStream:
    frames = Frames(generate, include_usage=include_usage)
    limit_s = settings.request_timeout_s
    return EventStream(answers, generate, frames, settings.keepalive_s, limit_s)


def _add_models(app: FastAPI, pool: Pool) -> None:
    created = int(time.time())

    def model(name: str, length: int) -> ModelBody:
        return ModelBody(id=name, created=created, max_model_len=length)

    @app.get("/v1/models")
    async def list_models() -> Response:
        """The models that live targets serve."""
        return _json(ModelList(data=tuple(model(*item) for item in sorted(pool.models.items()))))

    @app.get("/v1/models/{name:path}")
    async def retrieve_model(name: str) -> Response:
        """One model that a live target serves."""
        models = pool.models
        if name not in models:
            served = ", ".join(sorted(models)) or "no model right now"
            message = f"model={shown(name)}: no such model; served: {served}"
            raise UnknownModelError(message, param="model")
        return _json(model(name, models[name]))


def _json(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
