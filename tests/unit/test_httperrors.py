"""One shape for every HTTP error."""

from __future__ import annotations

import json

from starlette.exceptions import HTTPException
from starlette.requests import Request

from starsd.errors import OverloadedError, RequestError
from starsd.httperrors import error_response, http_error


def test_retry_after_is_whole_seconds_rounded_up() -> None:
    response = error_response(OverloadedError("full", retry_after_s=0.2).body())
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
    assert "Retry-After" not in error_response(RequestError("no").body()).headers


def test_lone_surrogates_do_not_break_the_error() -> None:
    body = error_response(RequestError("x=\ud800", param="x").body()).body
    assert json.loads(bytes(body))["error"] == {
        "message": "x=\ud800",
        "type": "invalid_request_error",
        "param": "x",
        "code": "invalid_value",
    }


def test_starlettes_errors_name_method_and_path() -> None:
    request = Request({"type": "http", "method": "GET", "path": "/x", "headers": []})
    error = http_error(request, HTTPException(405))
    assert (error.status, error.code) == (405, "method_not_allowed")
    assert error.message == "GET /x: Method Not Allowed"
    assert http_error(request, HTTPException(502)).type == "server_error"
