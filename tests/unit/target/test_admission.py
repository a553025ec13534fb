from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.target import admission
from starsd.errors import ContextLengthError, RequestError, UnknownModelError
from starsd.protocol.events import Generate
from starsd.protocol.sampling import Penalties, SamplingParams


def request(**changes: Any) -> Generate:
    fields: dict[str, Any] = {
        "id": "r",
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "sampling": SamplingParams(seed=1),
    }
    return Generate(**{**fields, **changes})


def check(one: Generate) -> None:
    admission.check(one, ("m",), vocab_size=100)


def test_what_the_gateway_sends_decodes_and_passes() -> None:
    sent = request(max_tokens=3, stop=("x",))
    decoded = admission.decode(msgspec.json.encode(sent), Generate)
    check(decoded)
    assert decoded == sent


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"x"',
        b'{"id":',
        b"\xff\xfe",
        b"[" * 100_000,
        msgspec.json.encode({**msgspec.to_builtins(request()), "unknown": 1}),
        msgspec.json.encode({**msgspec.to_builtins(request()), "max_tokens": 0}),
        msgspec.json.encode({**msgspec.to_builtins(request()), "sampling": [-1]}),
        msgspec.json.encode({**msgspec.to_builtins(request()), "sampling": [1, -0.5]}),
        msgspec.json.encode({**msgspec.to_builtins(request()), "sampling": [1, 1.0, 0, 2.0]}),
    ],
)
def test_anything_else_is_a_request_error(body: bytes) -> None:
    with pytest.raises(RequestError):
        admission.decode(body, Generate)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ("a" * 5000,)}, "stop"),
        ({"stop": ("a",) * 17}, "stop"),
        ({"sampling": SamplingParams(seed=2**64)}, "seed"),
        ({"sampling": SamplingParams(seed=1, bias={100: 1.0})}, "logit_bias"),
        ({"sampling": SamplingParams(seed=1, bias={-1: 1.0})}, "logit_bias"),
        ({"sampling": SamplingParams(seed=1, bias={5: 1e39})}, "logit_bias"),
        ({"sampling": SamplingParams(seed=1, bias={5: float("nan")})}, "logit_bias"),
        ({"sampling": SamplingParams(seed=1, penalties=Penalties(1e39))}, "penalties"),
    ],
)
def test_what_could_kill_the_engine_is_refused_by_name(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(request(**changes))
    assert word in caught.value.message


def test_the_edges_of_the_bounds_pass() -> None:
    sampling = SamplingParams(seed=2**64 - 1, bias={99: -100.0, 0: 100.0}, penalties=Penalties(2.0))
    check(request(sampling=sampling, stop=("a" * 4096,) * 16))


def test_another_model_is_unknown_here() -> None:
    with pytest.raises(UnknownModelError, match=r"'n'.* m"):
        check(request(model="n"))


def test_room_is_what_the_context_leaves() -> None:
    assert admission.room(request(), 10, 16) == 6
    assert admission.room(request(max_tokens=6), 10, 16) == 6
    assert admission.room(request(max_tokens=1), 15, 16) == 1


@pytest.mark.parametrize(("prompt", "wanted"), [(16, None), (16, 1), (20, None), (10, 7)])
def test_no_room_names_all_numbers(prompt: int, wanted: int | None) -> None:
    with pytest.raises(ContextLengthError) as caught:
        admission.room(request(max_tokens=wanted), prompt, 16)
    assert "16" in caught.value.message
    assert str(prompt) in caught.value.message
    if prompt < 16:
        assert str(wanted) in caught.value.message
    assert caught.value.body().code == "context_length_exceeded"


def test_what_cannot_fit_is_refused_before_it_is_tokenised() -> None:
    messages = [{"role": "user", "content": "x" * 1500}, {"role": "user", "content": "x" * 1061}]
    with pytest.raises(ContextLengthError, match=r"10 tokens.*2561 characters"):
        admission.check_size(request(messages=messages), max_length=10)
    messages[1]["content"] = "x" * 1060
    admission.check_size(request(messages=messages), max_length=10)
