"""The text's own proposals: when a step takes them, and what they cost and give."""

from __future__ import annotations

from typing import Any

import pytest

from starsd.protocol.frames import Origin, Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.ministar import TARGET_STEP_S, Answer, MiniStar
from tests.scripted import EOS, ByteTokenizer, EchoModel, ScriptedRunner

LINE = "the same line again, "
BY_SOURCE = "starsd:spec_decode_num_accepted_tokens_by_source_total"


def make_runner(settings: TargetSettings | DraftSettings | None = None) -> ScriptedRunner:
    return EchoModel(settings or TargetSettings(max_sequences=4, max_length=512)).runner()


def echo(text: str) -> Submit:
    """A request whose answer is ``text``, which stands in its prompt."""
    prompt = ByteTokenizer().encode_chat([{"role": "user", "content": text}])
    sampling = SamplingParams(seed=1, prompt_len=len(prompt))
    return Submit(id="r", prompt=prompt, sampling=sampling, max_tokens=200, eos=(EOS,))


def serve(star: MiniStar, text: str = LINE * 4) -> Answer:
    (answer,) = star.run([echo(text)])
    assert bytes(answer.tokens[:-1]).decode() == text
    return answer


@pytest.mark.parametrize("ngram", [0, 2, 8])
def test_ngram(ngram: int) -> None:
    """Without any hub; as many steps fewer as tokens were right."""
    with MiniStar([make_runner()], target={"ngram": ngram}) as star:
        answer = serve(star)
        forwards = star.pods[0].runner.forwards
        assert star.pods[0].metric(BY_SOURCE, source="ngram") == answer.stats.repeated
        assert star.pods[0].metric(BY_SOURCE, source="hub") == 0
    assert answer.stats.repeated == answer.stats.accepted
    assert forwards == len(answer.tokens) - answer.stats.accepted
    fewest = {0: 0, 2: 40, 8: 65}[ngram]
    assert fewest <= answer.stats.repeated <= fewest + 20
    if ngram:
        assert Origin.BONUS in answer.origins


def test_told_to_serve_plain_it_does() -> None:
    with MiniStar([make_runner()], target={"drafting": False}) as star:
        assert set(serve(star).origins) == {Origin.PLAIN}


def drafted(draft_step_s: float, **target: Any) -> MiniStar:
    """A star whose hub always knows the text."""
    hub = make_runner(DraftSettings(max_sequences=4, max_length=512))
    return MiniStar([make_runner()], hub, draft_step_s=draft_step_s, target=target)


def test_a_hub_in_time_is_preferred_unless_the_text_repeats_at_length() -> None:
    with drafted(draft_step_s=0.0, ngram=8) as star:
        answer = serve(star, "abcdefgh ABCDEFGH 0123 " + LINE * 2)
        sources = [star.pods[0].metric(BY_SOURCE, source=source) for source in ("hub", "ngram")]
    assert sources[0] > 0
    assert sources[1] > 30  # after 8 tokens, what stands in the prompt
    assert answer.stats.accepted == sum(sources)


def test_what_repeats_at_length_is_not_waited_for() -> None:
    """A hub that takes 5 ms a token and a patient target."""
    took = []
    for ngram in (0, 8):
        with drafted(0.005, ngram=ngram, wait_budget=100.0, depth_control="fixed") as star:
            serve(star)
            took.append(star.pods[0].metric("starsd:proposal_wait_seconds_total"))
    assert took[1] < took[0] / 4


def test_for_want_of_a_late_proposal_the_text_helps() -> None:
    """And the hub is late all the same, as its breaker has to know."""
    with drafted(50 * TARGET_STEP_S, ngram=8) as star:
        answer = serve(star)
        missed = star.pods[0].star._hubs.known["hub"].breaker.missed
    assert answer.stats.repeated > 40
    assert missed > 0
