from __future__ import annotations

import numpy as np
import pytest

from starsd.bench.draft.texts import Question, Text, answer
from starsd.errors import ConfigError
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample
from starsd.settings.target import TargetSettings
from tests.scripted import EOS, ByteTokenizer, HashModel, ScriptModel
from tests.scripted_head import TAPS, StateModel, features_of, make_target, state_after
from tests.unit.bench_draft.support import PROMPTS, questions, texts_of


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_plain_decoding(temperature: float) -> None:
    model = StateModel(TargetSettings(max_sequences=2))
    for text in texts_of(temperature):
        tokens = list(text.question.ids)
        for _ in range(30):
            sampling = text.question.sampling
            tokens.append(sample(model.logits(tokens), sampling, len(tokens), tokens))
        assert text.tokens == tokens
        assert text.own == tokens[-30:]


def test_more_questions_than_slots_with_prompts_in_chunks() -> None:
    runner = HashModel(TargetSettings(max_sequences=2, max_length=400)).runner()
    asked = [Question([seed] * 200, 210, SamplingParams(seed=seed)) for seed in range(5)]
    ticks: list[int] = []
    found = answer(runner, asked, (EOS,), tapped=False, tick=lambda: ticks.append(1))
    assert [text.question for text in found] == asked
    assert {len(text.own) for text in found} == {10}
    assert len(ticks) == 5
    assert runner.held == [[], []]
    assert runner.tokens == 5 * (200 + 9)


def test_an_answer_ends_with_the_models_end() -> None:
    runner = ScriptModel(TargetSettings(max_sequences=2)).runner()
    ids = ByteTokenizer().encode_chat([{"role": "user", "content": "?"}])
    (text,) = answer(runner, [Question(ids, 100, SamplingParams(seed=0))], (EOS,), tapped=False)
    assert bytes(text.own[:-1]).decode() == ScriptModel.text
    assert text.own[-1] == EOS


def test_hidden_states_of_every_position_but_the_last() -> None:
    for text in texts_of():
        wanted = [features_of(state_after(text.tokens[:end])) for end in range(1, len(text.tokens))]
        np.testing.assert_array_equal(text.features, wanted)
    assert len(TAPS) > 1


def test_as_many_at_once_as_the_cache_holds() -> None:
    runner = make_target(slots=4, kv_memory=2 * 256 * 1024)
    answer(
        runner, [Question(ids, 230, SamplingParams(seed=1)) for ids in PROMPTS], (), tapped=False
    )
    with pytest.raises(ConfigError, match="holds no text of 6000 tokens"):
        answer(runner, [Question([1], 6000, SamplingParams(seed=1))], (), tapped=False)


def test_what_repeats_itself_loops() -> None:
    question = questions()[0]
    assert Text(question, [*question.ids, *[5] * 20]).looping
    assert not Text(question, [*question.ids, *range(20)]).looping
    prompt = Question([5] * 20, 40, question.sampling)
    assert not Text(prompt, [*prompt.ids, 6]).looping
