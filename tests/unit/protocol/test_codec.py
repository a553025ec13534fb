from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.errors import ProtocolError
from starsd.protocol.codec import Sender, decode_to_hub, decode_to_target, encode, read_sender
from starsd.protocol.messages import (
    MAX_ENTRY_BYTES,
    MAX_FORESEEN,
    VERSION,
    Close,
    Foresight,
    Propose,
    Refused,
    ToHub,
    ToTarget,
)
from starsd.protocol.tokens import pack_tokens
from tests.unit.protocol import samples

GOLDEN: dict[str, str] = {
    "hello": "98a568656c6c6f02a574313a6231a27431a2623194a3746f6bcdc000a3726576cd0800b27b737461"
    "7273647d3a6f75743a74313a6231c2",
    "welcome": "96a777656c636f6d6502a574313a6231a26831a368623193080fcd0800",
    "refused": "96a77265667573656402a574313a6231a26831a3686231b1746f6b656e697a65722064696666657273",
    "propose": "dc0014a770726f706f736502a574313a6231a27331000100b27b7374617273647d3a6f75743a7431"
    "3a623100c408e4a6a0577479b2b4c40c0100000002000000ffbf00000400cd01f49807cb3fe99999"
    "9999999a28cb3fee666666666666cb000000000000000000c0c0c0c0c09000",
    "proposal": "dc0011a870726f706f73616c02a574313a6231a27331000100a26f6bc4080500000006000000c092"
    "03c408e4a6a0577479b2b40800a26831a36862310ccd0d48",
    "foresight": "9aa9666f7265736967687402a574313a6231a273310001a26831a3686231c40c0500000006000000"
    "0700000093ff00ff",
    "close": "94a5636c6f736502a574313a6231a27331",
}
"""What each sample is on the wire. A change here breaks stars of mixed versions: raise VERSION."""

TO_TARGET = frozenset({"welcome", "refused", "proposal", "foresight"})


def sample(kind: str) -> Any:
    make: Callable[[], Any] = getattr(samples, kind)
    return make()


def decode(kind: str, data: bytes) -> ToHub | ToTarget:
    return decode_to_target(data) if kind in TO_TARGET else decode_to_hub(data)


def parts(kind: str) -> list[Any]:
    """A sample as the plain list that travels."""
    found: list[Any] = msgspec.msgpack.decode(bytes.fromhex(GOLDEN[kind]))
    return found


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize("kind", sorted(GOLDEN))
def test_golden_bytes(kind: str) -> None:
    assert encode(sample(kind)).hex() == GOLDEN[kind]
    assert decode(kind, bytes.fromhex(GOLDEN[kind])) == sample(kind)


@pytest.mark.parametrize("kind", sorted(GOLDEN))
def test_fields_appended_by_a_newer_version_are_ignored(kind: str) -> None:
    assert decode(kind, pack([*parts(kind), "new", {"a": [1]}])) == sample(kind)


@pytest.mark.parametrize("kind", sorted(GOLDEN))
def test_a_message_for_the_other_side_is_refused(kind: str) -> None:
    other = decode_to_hub if kind in TO_TARGET else decode_to_target
    with pytest.raises(ProtocolError, match=kind):
        other(bytes.fromhex(GOLDEN[kind]))


@pytest.mark.parametrize("kind", sorted(GOLDEN))
@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1, -1, "1", None])
def test_another_version_is_refused(kind: str, version: object) -> None:
    changed = parts(kind)
    changed[1] = version
    with pytest.raises(ProtocolError, match=r"\[1\]"):
        decode(kind, pack(changed))


def test_a_missing_required_field_is_refused() -> None:
    with pytest.raises(ProtocolError, match="at least length"):
        decode_to_hub(pack(parts("close")[:-2]))


def test_a_hello_of_before_reads_no_foresight() -> None:
    assert decode_to_hub(pack(parts("hello")[:-1])) == samples.hello(foresight=False)


def test_a_job_of_before_knows_no_prices() -> None:
    assert decode_to_hub(pack(parts("propose")[:-2])) == samples.propose(prices=[], rate=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens", bytes(4 * MAX_FORESEEN + 4)), ("parents", [-1] * (MAX_FORESEEN + 1))],
)
def test_foresight_is_bounded(field: str, value: object) -> None:
    changed = parts("foresight")
    changed[1 + Foresight.__struct_fields__.index(field)] = value
    with pytest.raises(ProtocolError, match="length"):
        decode_to_target(pack(changed))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session", ""),
        ("session", "x" * 129),
        ("seq", 5),
        ("epoch", -1),
        ("round", 2**32),
        ("digest", b"short"),
        ("tokens", b"123"),
        ("tokens", [1, 2]),
        ("depth", 65),
        ("max_nodes", 16),
        ("sampling", None),
    ],
)
def test_a_propose_out_of_bounds_is_refused_naming_the_place(field: str, value: object) -> None:
    index = 1 + Propose.__struct_fields__.index(field)
    changed = parts("propose")
    changed[index] = value
    with pytest.raises(ProtocolError, match=rf"\$\[{index}\]|\$\.{field}"):
        decode_to_hub(pack(changed))


def test_a_proposal_with_an_unknown_status_or_half_a_token_is_refused() -> None:
    changed = parts("proposal")
    changed[7] = "maybe"
    with pytest.raises(ProtocolError, match=r"\[7\]"):
        decode_to_target(pack(changed))
    with pytest.raises(ProtocolError, match="tokens"):
        decode_to_target(encode(samples.proposal(tokens=b"12345")))


def test_oversize_is_refused_both_ways() -> None:
    big = samples.propose(features=b"f" * MAX_ENTRY_BYTES)
    with pytest.raises(ProtocolError, match=str(MAX_ENTRY_BYTES)):
        encode(big)
    with pytest.raises(ProtocolError, match=str(MAX_ENTRY_BYTES)):
        decode_to_hub(pack(msgspec.to_builtins(big)))


def test_hostile_nesting_is_a_protocol_error() -> None:
    deep = b"\x91" * 100_000 + b"\x00"
    tail = b"\x95\xa5close\x01\xa1s\xc0" + deep
    for data in (deep, tail):
        with pytest.raises(ProtocolError):
            decode_to_hub(data)
        assert read_sender(data) is None


names = st.text(min_size=1, max_size=128)
counts = st.integers(0, 2**32 - 1)
tokens = st.lists(counts, max_size=64).map(pack_tokens)
digests = st.binary(min_size=8, max_size=8)


@given(
    st.builds(
        samples.propose,
        session=names,
        seq=names,
        epoch=counts,
        round=counts,
        base=counts,
        digest=digests,
        tokens=tokens,
        depth=st.integers(0, 64),
        max_nodes=st.integers(0, 15),
        features=st.none() | st.binary(max_size=64),
        trace=st.none() | st.text(max_size=16),
    )
    | st.builds(samples.hello, session=names, target=names)
    | st.builds(Close, session=names, seq=st.none() | names)
)
def test_round_trip_to_hub(message: ToHub) -> None:
    assert decode_to_hub(encode(message)) == message


@given(
    st.builds(
        samples.proposal,
        session=names,
        attempt=counts,
        tokens=tokens,
        parents=st.none() | st.lists(st.integers(-1, 15), max_size=16),
        max_depth=st.integers(0, 64),
        service_us=counts,
    )
    | st.builds(
        samples.foresight,
        round=counts,
        tokens=tokens,
        parents=st.lists(st.integers(-1, 15), max_size=16),
    )
    | st.builds(Refused, session=names, hub=names, hub_boot=names, reason=st.text(max_size=50))
)
def test_round_trip_to_target(message: ToTarget) -> None:
    assert decode_to_target(encode(message)) == message


def nothing_but_protocol_errors(data: bytes) -> None:
    for decoder in (decode_to_hub, decode_to_target):
        try:
            message: object = decoder(data)
        except ProtocolError:
            continue
        assert isinstance(message, ToHub | ToTarget)
    assert isinstance(read_sender(data), Sender | None)


@given(st.binary(max_size=400))
def test_random_bytes(data: bytes) -> None:
    nothing_but_protocol_errors(data)


@given(st.sampled_from(sorted(GOLDEN)), st.data())
def test_damaged_messages(kind: str, draw: st.DataObject) -> None:
    data = bytearray.fromhex(GOLDEN[kind])
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    nothing_but_protocol_errors(bytes(data[: draw.draw(st.integers(1, len(data)))]))


def test_the_sender_of_a_bad_propose_can_be_read() -> None:
    bad = parts("propose")
    bad[1], bad[9:] = 99, ["not", "what", "we", "know"]
    assert read_sender(pack(bad)) == Sender(
        session="t1:b1", seq="s1", epoch=0, round=1, attempt=0, reply_key=samples.REPLY_KEY
    )


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 7])
def test_no_sender_without_all_its_fields(cut: int) -> None:
    assert read_sender(pack(parts("propose")[:cut])) is None


def test_no_sender_in_other_messages_or_with_wrong_types() -> None:
    assert read_sender(bytes.fromhex(GOLDEN["hello"])) is None
    assert read_sender(pack({"kind": "propose"})) is None
    wrong = parts("propose")
    wrong[3] = ["s1"]
    assert read_sender(pack(wrong)) is None
