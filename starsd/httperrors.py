"""The one shape of HTTP errors, ``{"error": {message, type, param, code}}``, for every service."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from starsd.errors import INTERNAL_ERROR, ErrorBody, StarsdError

log = structlog.get_logger()

_CODES = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
}


def error_response(error: ErrorBody, headers: Mapping[str, str] | None = None) -> Response:
    """The error as an HTTP response, with ``Retry-After`` (whole seconds) where it is known."""
    sent = dict(headers or {})
    if error.retry_after_s is not None:
        sent["Retry-After"] = str(math.ceil(error.retry_after_s))
    # Not msgspec: a message may quote lone surrogates, which only ASCII escapes can carry.
    content = json.dumps(error.as_json())
    return Response(content, error.status, sent, media_type="application/json")


def http_error(request: Request, error: HTTPException) -> ErrorBody:
    """Starlette's own errors (404, 405, 413 and the like) in our shape."""
    status = HTTPStatus(error.status_code)
    message = f"{request.method} {request.url.path}: {error.detail}"
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    code = _CODES.get(status, status.name.lower())
    return ErrorBody(message=message, type=kind, code=code, status=status)


async def _on_starsd_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, StarsdError)
    return error_response(error.body())


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(http_error(request, error), error.headers)


async def _on_crash(request: Request, error: Exception) -> Response:
    log.error("request crashed", path=request.url.path, exc_info=error)
    return error_response(INTERNAL_ERROR)


def exception_handlers() -> dict[Any, Any]:
    """For ``Starlette(exception_handlers=...)`` and ``FastAPI(exception_handlers=...)``."""
    return {
        StarsdError: _on_starsd_error,
        HTTPException: _on_http_error,
        Exception: _on_crash,
    }
