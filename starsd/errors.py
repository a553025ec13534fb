"""The one exception tree, and its one mapping to HTTP status and OpenAI error object.

Every error that may reach a user says which key, which value, and what would be right.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar

import msgspec


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object, plus the HTTP status it travels with between our services."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    status: int = 500
    retry_after_s: float | None = None

    def as_json(self) -> dict[str, dict[str, str | None]]:
        """The body every HTTP error and every SSE error frame carries."""
        fields = {"message": self.message, "type": self.type, "param": self.param}
        return {"error": {**fields, "code": self.code}}


class StarsdError(Exception):
    """Root of the tree. Subclasses differ by class attributes only."""

    status: ClassVar[int] = HTTPStatus.INTERNAL_SERVER_ERROR
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> ErrorBody:
        return ErrorBody(
            message=self.message,
            type=self.type,
            param=self.param,
            code=self.code,
            status=int(self.status),
            retry_after_s=self.retry_after_s,
        )


class ConfigError(StarsdError):
    """A setting, model or environment that cannot work; raised at start, never while serving."""

    code = "bad_configuration"


class UnsupportedModelError(ConfigError):
    """An architecture whose state cannot be rolled back, or that we cannot run."""

    code = "unsupported_model"


class RequestError(StarsdError):
    """The client's request is wrong: 400."""

    status = HTTPStatus.BAD_REQUEST
    type = "invalid_request_error"
    code = "invalid_value"


class UnsupportedFieldError(RequestError):
    """A field that we know and do not serve, or do not know at all."""

    code = "unsupported_parameter"


class ContextLengthError(RequestError):
    """Prompt plus requested tokens do not fit the model's context."""

    code = "context_length_exceeded"


class GrammarError(RequestError):
    """A schema, regex or grammar that is wrong, or too large to be enforced."""

    code = "invalid_grammar"


class UnknownModelError(RequestError):
    """No live target serves the model asked for."""

    status = HTTPStatus.NOT_FOUND
    code = "model_not_found"


class OverloadedError(StarsdError):
    """The admission queue is full: try again later (429 with Retry-After)."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    type = "rate_limit_error"
    code = "overloaded"


class UnavailableError(StarsdError):
    """Nothing that could serve the request is alive right now (503)."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "unavailable"


class DeadlineError(StarsdError):
    """A wait with a deadline ran out (504)."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    type = "timeout_error"
    code = "timeout"


class EngineError(StarsdError):
    """The engine failed while serving; the request ends with this as its terminal event."""

    code = "engine_error"


class TransportError(StarsdError):
    """A link to Redis or to another of our processes is broken."""

    code = "transport_error"


class ProtocolError(StarsdError):
    """A message that does not decode, is over its bound, or breaks the wire contract."""

    code = "bad_message"


class RemoteError(StarsdError):
    """An error that another of our services reported; carries its body unchanged."""

    def __init__(self, body: ErrorBody) -> None:
        super().__init__(body.message, param=body.param, retry_after_s=body.retry_after_s)
        self._body = body

    def body(self) -> ErrorBody:
        return self._body


INTERNAL_ERROR = StarsdError("internal error; the server's log has the details").body()
