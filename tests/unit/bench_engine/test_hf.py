from __future__ import annotations

from pathlib import Path

from starsd.bench.engine.hf import EagerBatch


def test_decodes_from_the_same_context_each_time(tiny_model: Path) -> None:
    batch = EagerBatch(tiny_model, sequences=3, context=10)
    lengths: list[tuple[int, int]] = []
    model = batch._model

    def spy(**given: object) -> object:
        ids = given["input_ids"]
        lengths.append((ids.shape[0], given["cache"].get_seq_length()))  # type: ignore[attr-defined]
        return model(**given)

    batch._model = spy
    batch.decode(3)
    batch.decode(2)
    assert lengths == [(3, 10), (3, 11), (3, 12), (3, 10), (3, 11)]
