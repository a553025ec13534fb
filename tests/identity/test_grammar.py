"""Grammars: the text is plain decoding's under the same masks, whoever proposes it, and matches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from llguidance import LLTokenizer

from starsd.engine.interface import Runner
from starsd.engine.vocabulary import grammar_tokenizer
from starsd.grammar.definition import define
from starsd.grammar.state import GrammarState
from starsd.protocol.frames import FinishReason, Submit
from starsd.protocol.grammar import Grammar, GrammarKind
from starsd.protocol.sampling import Penalties
from starsd.settings.target import TargetSettings
from tests.identity.scripted_star import (
    PATIENT,
    draft_runner,
    make_requests,
    target_runner,
    tokens,
)
from tests.identity.support import make_requests as tiny_requests
from tests.identity.test_adversaries import change, twisted
from tests.identity.test_matrix import STAR, outcomes
from tests.identity.test_trees import TREES, any_tokens
from tests.ministar import Answer, MiniStar
from tests.scripted import EOS, POSITION_BYTES, HashModel
from tests.tiny import LAYERS_DRAFT, NOISY_DRAFT, VOCAB

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "identifier": {"type": "integer", "minimum": 0, "maximum": 999},
        "status": {"enum": ["waiting", "working", "finished"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
    },
    "required": ["identifier", "status", "tags"],
    "additionalProperties": False,
}
WORDS = r"([a-c]{1,4} ){2,6}(end|stop)"


def of(kind: GrammarKind, source: str) -> str:
    return define(Grammar(kind, source, "guided"))


GRAMMARS = {
    "schema": of(GrammarKind.JSON, json.dumps(SCHEMA)),
    "regex": of(GrammarKind.REGEX, WORDS),
    "choice": of(GrammarKind.CHOICE, json.dumps(["a yellow dwarf", "a yellow giant", "none"])),
    "long": of(GrammarKind.REGEX, "[a-z]{3}( [a-z]{3}){30}"),
}


def bound_by(name: str, requests: list[Submit], **changes: Any) -> list[Submit]:
    return [msgspec.structs.replace(one, grammar=GRAMMARS[name], **changes) for one in requests]


def plain(runner: Runner, requests: list[Submit], known: LLTokenizer | None = None) -> list[Answer]:
    """Without any proposals, forced ones neither."""
    with MiniStar([runner], target={"drafting": False}, tokens=known) as star:
        return star.run(requests)


def by_source(star: MiniStar, source: str) -> float:
    name = "starsd:spec_decode_num_accepted_tokens_by_source_total"
    return sum(pod.metric(name, source=source) for pod in star.pods)


def text(answer: Answer) -> str:
    return bytes(token for token in answer.tokens if token < EOS).decode()


@pytest.fixture(scope="session")
def known(tiny_model: Path) -> LLTokenizer:
    return grammar_tokenizer(tiny_model, VOCAB)


@pytest.mark.parametrize("draft", [{}, TREES], ids=["chains", "trees"])
@pytest.mark.parametrize("name", [*GRAMMARS])
def test_the_star_is_plain_decoding_under_the_mask(name: str, draft: dict[str, Any]) -> None:
    """Greedy and at temperature 0.8; the scripted draft knows nothing of grammars."""
    requests = bound_by(name, make_requests(8, max_tokens=120))
    expected = plain(target_runner(), requests)
    runners = [target_runner() for _ in range(2)]
    with MiniStar(runners, draft_runner(), target=PATIENT, draft=draft) as star:
        answers = star.run(requests)
        forced = by_source(star, "grammar")
    assert outcomes(answers) == outcomes(expected)
    assert sum(one.stats.accepted for one in answers) > 10
    assert forced > 20 or name in ("regex", "long")


@pytest.mark.parametrize("draft", [LAYERS_DRAFT, NOISY_DRAFT])
@pytest.mark.parametrize("trees", ["on", "off"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_of_a_real_cache(
    targets: list[Runner],
    drafts: dict[str, Runner],
    known: LLTokenizer,
    temperature: float,
    trees: str,
    draft: str,
) -> None:
    """Tokens of several bytes; the tokenizer spells what is forced."""
    requests = bound_by("schema", tiny_requests(8, temperature), max_tokens=60)
    expected = plain(targets[0], requests, known)
    with MiniStar(
        targets, drafts[draft], target=STAR, draft={"trees": trees}, tokens=known
    ) as star:
        answers = star.run(requests)
        assert by_source(star, "grammar") > 20
        assert by_source(star, "hub") > 0
    assert outcomes(answers) == outcomes(expected)


@pytest.mark.parametrize(
    "sampling",
    [
        {"top_k": 5, "min_p": 0.02},
        {"top_p": 0.6},
        {"penalties": Penalties(0.5, 0.5, 1.2), "bias": {5: 2.0, 300: -50.0}},
    ],
    ids=["top_k", "top_p", "penalties"],
)
def test_with_filters_and_penalties(
    targets: list[Runner], drafts: dict[str, Runner], known: LLTokenizer, sampling: dict[str, Any]
) -> None:
    """Penalties and bias come before the mask, filters after it: they never empty it."""
    requests = bound_by("regex", tiny_requests(8, 0.9, **sampling))
    expected = plain(targets[0], requests, known)
    with MiniStar(targets, drafts[NOISY_DRAFT], target=STAR, draft=TREES, tokens=known) as star:
        answers = star.run(requests)
    assert outcomes(answers) == outcomes(expected)


def test_without_a_hub_what_is_forced_is_still_proposed() -> None:
    """At the target, without waiting: fewer forwards, the same text."""
    requests = bound_by("schema", make_requests(4, max_tokens=120))
    expected = plain(target_runner(), requests)
    with MiniStar([target_runner()]) as star:
        answers = star.run(requests)
        forwards = star.pods[0].runner.forwards
        assert star.pods[0].metric("starsd:proposal_wait_seconds_total") == 0
    assert outcomes(answers) == outcomes(expected)
    assert forwards < max(len(one.tokens) for one in answers) * 0.8


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_an_answer_that_ends_always_validates(temperature: float) -> None:
    """The model's own wishes are noise; what it writes matches all the same."""
    requests = bound_by("schema", make_requests(8, max_tokens=200, temperature=temperature))
    for answer in plain(target_runner(), requests):
        assert answer.reason is FinishReason.STOP
        jsonschema.validate(json.loads(text(answer)), SCHEMA)


def test_white_space_ends() -> None:
    """A model that would write spaces for ever may not."""
    spaces = {32: 100.0, 10: 100.0}
    request = make_requests(1, max_tokens=150, temperature=0.0)[0]
    biased = msgspec.structs.replace(request.sampling, bias=spaces)
    bound = msgspec.structs.replace(request, sampling=biased, grammar=GRAMMARS["schema"])
    (answer,) = plain(target_runner(), [bound])
    assert "  " in text(answer)
    assert '"identifier"' in text(answer)


def test_e22_a_draft_outside_the_grammar_is_cut_not_fatal() -> None:
    """The hub proposes prose, and ends, where only JSON is allowed."""

    def prose(bus: Any, proposal: Any) -> list[Any]:
        said = [*b"Sure! ", EOS]
        return change(proposal, tokens=b"".join(t.to_bytes(4, "little") for t in said[:4]))

    requests = bound_by("schema", make_requests(4, max_tokens=120))
    expected = plain(target_runner(), requests)
    with MiniStar(
        [target_runner()], draft_runner(), target=PATIENT, bus_type=twisted(prose)
    ) as star:
        answers = star.run(requests)
        proposed = by_source(star, "hub")
    assert tokens(answers) == tokens(expected)
    assert proposed == 0


def test_lawful_trees_of_anything_are_cut_to_what_the_grammar_allows() -> None:
    requests = bound_by("regex", make_requests(8, max_tokens=60))
    expected = plain(target_runner(), requests)
    with MiniStar(
        [target_runner()],
        draft_runner(),
        target=PATIENT,
        draft=TREES,
        bus_type=twisted(any_tokens),
    ) as star:
        answers = star.run(requests)
    assert tokens(answers) == tokens(expected)


def test_preempted_sequences_keep_their_place_in_the_grammar() -> None:
    requests = bound_by("long", make_requests(6, max_tokens=90))
    settings = TargetSettings(max_sequences=8, max_length=256, kv_memory=7 * 64 * POSITION_BYTES)
    expected = plain(target_runner(), requests)
    with MiniStar([HashModel(settings).runner()], draft_runner(), target=PATIENT) as star:
        answers = star.run(requests)
        preemptions = star.pods[0].metric("starsd:preemptions_total")
    assert tokens(answers) == tokens(expected)
    assert preemptions > 0


def test_a_grammar_that_does_not_compile_fails_its_request_alone() -> None:
    good, bad = make_requests(2)
    bad = msgspec.structs.replace(bad, grammar='{"grammars":[{"lark_grammar":"start: ("}]}')
    with MiniStar([target_runner()]) as star:
        answers = star.run([good, bad])
    assert answers[0].error is None
    assert answers[1].error is not None
    assert answers[1].error.code == "invalid_grammar"


def test_a_grammar_too_complex_to_go_on_fails_its_request_alone() -> None:
    """Within the limits of compiling, but not of walking."""
    good, bad = make_requests(2, max_tokens=60)
    bad = msgspec.structs.replace(
        bad, grammar=of(GrammarKind.REGEX, "((((a{0,100}){0,100}){0,100}){0,100})")
    )
    with MiniStar([target_runner()]) as star:
        answers = star.run([good, bad])
    assert answers[0].error is None
    assert answers[1].error is not None
    assert answers[1].error.status == 400


def test_a_mutant_that_forgets_the_walk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of the first row for all rows: the proof above can fail."""
    requests = bound_by("schema", make_requests(4, max_tokens=120))
    expected = plain(target_runner(), requests)
    mask = GrammarState.mask
    monkeypatch.setattr(GrammarState, "mask", lambda self, walked: mask(self, []))
    with MiniStar([target_runner()], draft_runner(), target=PATIENT) as star:
        answers = star.run(requests)
    assert [one.tokens for one in answers] != [one.tokens for one in expected]
