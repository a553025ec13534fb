from __future__ import annotations

from pathlib import Path

from starsd.bench.endless import EndlessModel, EndlessTokenizer
from starsd.bench.profile import ENDLESS
from starsd.engine.interface import Model, Row
from starsd.engine.loading import load_model
from starsd.engine.tokenizer import HfTokenizer
from starsd.engine.vocabulary import vocabulary_fingerprint
from starsd.settings.target import TargetSettings
from tests.scripted import ByteTokenizer


def test_only_the_end_is_missing() -> None:
    real = ByteTokenizer()
    endless = EndlessTokenizer(real)
    assert real.eos_ids
    assert endless.eos_ids == ()
    assert endless.vocab_size == real.vocab_size
    messages = [{"role": "user", "content": "Hi"}]
    assert endless.encode_chat(messages) == real.encode_chat(messages)
    assert endless.text_stream().push(65) == "A"


def test_the_model_is_the_one_of_the_settings(tiny_model: Path) -> None:
    settings = TargetSettings(
        model=str(tiny_model), scripted=ENDLESS, max_sequences=1, max_length=32
    )
    model: Model = load_model(settings)
    assert isinstance(model, EndlessModel)
    assert model.vocabulary() == vocabulary_fingerprint(tiny_model)
    assert HfTokenizer(tiny_model).eos_ids
    assert model.tokenizer().eos_ids == ()
    assert model.runner().forward([Row(0, [5], 0)])[0].shape == (1, model.runner().vocab_size)
