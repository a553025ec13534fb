"""Salts and sessions from headers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from services.gateway.caller import with_caller
from starsd.protocol.events import Generate
from starsd.protocol.sampling import SamplingParams

REQUEST = Generate(id="r", model="m", sampling=SamplingParams(seed=1))


def of(**headers: str) -> tuple[str, str]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    found = with_caller(REQUEST, Headers(given))
    return found.salt, found.session


def test_nobody_in_particular() -> None:
    assert of() == ("", "")
    assert with_caller(REQUEST, Headers({})) == REQUEST


def test_the_key_is_the_tenant_and_does_not_travel() -> None:
    one, two = of(authorization="Bearer sk-one"), of(authorization="Bearer sk-two")
    assert one == of(authorization="Bearer sk-one")
    assert one[0] != two[0]
    assert "sk-one" not in one[0]
    assert len(one[0]) == 32


def test_a_session_is_its_tenants_own() -> None:
    found = {
        of(x_session_id=session, **key)[1]
        for session in ("a", "b")
        for key in ({}, {"authorization": "Bearer sk-one"})
    }
    assert len(found) == 4
    assert of(x_session_id="a") == of(x_session_id="a")


@pytest.mark.parametrize("session", ["x" * 10_000, "é\xff"])
def test_any_session_fits(session: str) -> None:
    assert len(of(x_session_id=session)[1]) == 32
