"""Hidden states on the wire, and who may use an offer that needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from starsd.errors import ProtocolError
from starsd.protocol.features import pack_features, unpack_features
from starsd.protocol.messages import Facts, Limits
from starsd.protocol.pods import MAX_ROW_BYTES, DrafterKind, Needs, Offer, incompatibility

FACTS = Facts(tokenizer="tok", vocab_size=100, revision="rev", max_length=512)
ONE = 0x3F80
"""1.0 in bfloat16."""


def make_offer(**needs: Any) -> Offer:
    given: dict[str, Any] = {"hidden_size": 8, "layers": (1, 3), **needs}
    return Offer(
        kind=DrafterKind.EAGLE,
        model="m",
        revision="r",
        tokenizer="tok",
        vocab_size=100,
        max_length=512,
        limits=Limits(max_depth=8),
        needs=Needs(**given),
    )


def test_rows_come_back_as_they_were() -> None:
    rows = np.arange(12, dtype=np.uint16).reshape(3, 4)
    data = pack_features(rows)
    assert data[2:4] == b"\x01\x00"
    assert np.array_equal(unpack_features(data, 4), rows)


def test_no_rows_are_rows_too() -> None:
    assert unpack_features(b"", 4).shape == (0, 4)


@pytest.mark.parametrize("size", [1, 4, 7, 9])
def test_rows_must_be_whole(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"{size} bytes are no whole rows of 4"):
        unpack_features(b"\0" * size, 4)


@pytest.mark.parametrize("number", [0x7F80, 0xFF80, 0x7FC0, 0x7F81])
def test_every_number_must_be_finite(number: int) -> None:
    rows = np.array([[ONE, 0x7F7F], [number, ONE]], np.uint16)
    with pytest.raises(ProtocolError, match="infinite or no number"):
        unpack_features(pack_features(rows), 2)


@pytest.mark.parametrize("revision", ["rev", ""])
def test_an_offer_for_our_weights_or_for_whatever_fits(revision: str) -> None:
    assert incompatibility(make_offer(revision=revision), FACTS) is None


def test_an_offer_for_other_weights() -> None:
    reason = incompatibility(make_offer(revision="other"), FACTS)
    assert reason == "revision: hub drafts for other, target is rev"


def test_an_entry_must_hold_a_few_positions() -> None:
    wide = MAX_ROW_BYTES // 2 // 2
    assert incompatibility(make_offer(hidden_size=wide), FACTS) is None
    reason = incompatibility(make_offer(hidden_size=wide + 1), FACTS)
    assert reason is not None
    assert reason.startswith("width: ")
