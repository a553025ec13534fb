"""How a model is told of tools and calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from services.target.assembly import Assembly
from services.target.grammars import Grammars
from services.target.tooling import Calls, Tooling
from starsd.errors import GrammarError
from starsd.protocol.events import Generate
from starsd.protocol.frames import FinishReason, Origin
from starsd.protocol.grammar import Grammar, GrammarKind
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tools import CallDelta, Function, ToolChoice, ToolUse
from tests.unit.target.bytetext import EOS, ByteTokenizer

USE = ToolUse(functions=(Function(name="f", parameters={"type": "object"}),))
USER = {"role": "user", "content": "hi"}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
CUT = CALL[: CALL.index("}}")]
QWEN = "{% if tools %}<tool_call>{% endif %}"


class TemplateTokenizer(ByteTokenizer):
    """Remembers what its template was given."""

    def __init__(self, template: str, marker: str = "") -> None:
        super().__init__()
        self.chat_template = template
        self.marker = marker
        self.given: tuple[list[Any], list[Any]] = ([], [])

    def special_id(self, text: str) -> int | None:
        return 300 if text == self.marker else None

    def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        *,
        answer: bool = True,
    ) -> list[int]:
        self.given = ([*messages], [*tools])
        return super().encode_chat(messages, tools, answer=answer)


def request(**fields: Any) -> Generate:
    given = {"messages": [USER], "tools": USE, **fields}
    return Generate(id="r", model="m", sampling=SamplingParams(seed=1), **given)


def read(calls: Calls, text: str) -> tuple[str, list[CallDelta]]:
    said = calls.push(text) + calls.finish("")
    return said, calls.take()


def calls_of(tooling: Tooling, wanted: Generate, choice_id: str = "c") -> Calls:
    calls = tooling.calls(wanted, choice_id)
    assert calls is not None
    return calls


def assembly(text: str, **use: Any) -> Assembly:
    wanted = request(tools=ToolUse(functions=USE.functions, **use))
    tokenizer = ByteTokenizer(*text)
    calls = Tooling(tokenizer, "auto").calls(wanted, "c")
    return Assembly(tokenizer, (), (EOS,), calls=calls)


@pytest.mark.parametrize(
    ("parser", "template", "answer"),
    [
        ("hermes", "[TOOL_CALLS]", CALL),
        ("mistral", QWEN, '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]'),
        ("llama3_json", QWEN, '{"name": "f", "parameters": {"a": 1}}'),
        ("auto", QWEN, CALL),
        ("auto", "{{ tools }}[TOOL_CALLS]", '[TOOL_CALLS]f{"a": 1}'),
        ("auto", "", CALL),
    ],
)
def test_tool_parser(parser: str, template: str, answer: str) -> None:
    tooling = Tooling(TemplateTokenizer(template), parser)
    text, deltas = read(calls_of(tooling, request()), answer)
    assert text == ""
    assert [delta.name for delta in deltas] == ["f", None]
    assert deltas[1].arguments == '{"a": 1}'


def test_a_template_that_knows_tools_gets_them() -> None:
    tokenizer = TemplateTokenizer(QWEN)
    Tooling(tokenizer, "auto").prompt_ids(request())
    assert tokenizer.given == ([USER], [USE.functions[0].as_tool()])


def test_a_template_that_knows_none_gets_text() -> None:
    tokenizer = TemplateTokenizer("{{ messages }}")
    Tooling(tokenizer, "auto").prompt_ids(request())
    messages, tools = tokenizer.given
    assert tools == []
    assert messages[0]["role"] == "system"
    assert '"name": "f"' in messages[0]["content"]


@pytest.mark.parametrize("template", ["", QWEN])
def test_without_tools_prompts_are_as_they_were(template: str) -> None:
    tokenizer = TemplateTokenizer(template)
    named = {**USER, "name": "me"}
    Tooling(tokenizer, "auto").prompt_ids(request(tools=None, messages=[named]))
    assert tokenizer.given == ([named], [])


def test_prompts_of_text_and_of_ids() -> None:
    tooling = Tooling(TemplateTokenizer(""), "auto")
    assert tooling.prompt_ids(request(messages=[], prompt="ab", tools=None)) == [97, 98]
    assert tooling.prompt_ids(request(messages=[], prompt=[5], tools=None)) == [5]


def test_ids_of_calls_differ_and_are_what_the_template_takes() -> None:
    two = CALL + CALL
    _, hermes = read(calls_of(Tooling(TemplateTokenizer(QWEN), "auto"), request()), two)
    mistral = Tooling(TemplateTokenizer(QWEN), "mistral")
    _, one = read(calls_of(mistral, request()), "[TOOL_CALLS]f{}")
    _, other = read(calls_of(mistral, request(), "d"), "[TOOL_CALLS]f{}")
    ids = [delta.id for delta in hermes if delta.name]
    assert len({*ids}) == 2
    assert all(call_id and call_id.startswith("call_") for call_id in ids)
    assert one[0].id is not None
    assert one[0].id != other[0].id
    assert len(one[0].id) == 9
    assert one[0].id.isalnum()


def test_special_markers_are_written_out() -> None:
    plain, marked = TemplateTokenizer(QWEN), TemplateTokenizer(QWEN, marker="<tool_call>")
    assert not calls_of(Tooling(plain, "auto"), request()).special
    assert calls_of(Tooling(marked, "auto"), request()).special
    assert Tooling(marked, "auto").calls(request(tools=None), "c") is None


def test_where_a_broken_call_was() -> None:
    calls = calls_of(Tooling(TemplateTokenizer(QWEN), "auto"), request())
    bad = '<tool_call>{"name": "f", "arguments": {a}}'
    text, deltas = read(calls, f"before{bad}after")
    assert text == "beforeafter"
    assert (deltas[-1].broken, deltas[-1].at, deltas[-1].rest) == (bad, len("before"), "}")


@pytest.mark.parametrize("use", [{"parallel": False}, {"name": "f"}])
def test_an_answer_of_one_call_ends_with_it(use: dict[str, Any]) -> None:
    whole = assembly(CALL * 2, **use)
    tokens = whole._tokenizer.pieces()  # type: ignore[attr-defined]
    delta = whole.push(tokens, [Origin.PLAIN] * len(tokens))
    assert whole.stopped
    assert len(delta.ids) == CALL.index("}}") + 2
    assert whole.finish(FinishReason.CANCELLED) == ("", FinishReason.STOP)
    assert whole.calls() == []


def test_calls_come_with_the_tokens_that_tell_them_and_the_rest_at_the_end() -> None:
    whole = assembly(CUT)
    tokens = whole._tokenizer.pieces()  # type: ignore[attr-defined]
    deltas = [whole.push([token], [Origin.PLAIN]) for token in tokens]
    told = [call for delta in deltas for call in delta.calls]
    assert told[0].name == "f"
    assert not any(delta.text for delta in deltas)
    assert whole.finish(FinishReason.LENGTH) == ("", FinishReason.LENGTH)
    (broken,) = whole.calls()
    assert broken.broken == CUT


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"grammar": Grammar(GrammarKind.REGEX, "(", "guided_regex")}, "guided_regex", "unclosed"),
        (
            {"grammar": Grammar(GrammarKind.JSON, '{"x-guidance": 1}', "response_format")},
            "response_format",
            "x-guidance",
        ),
        (
            {
                "tools": ToolUse(
                    functions=(Function(name="f", parameters={"not": {}}, strict=True),)
                )
            },
            "tools",
            "not",
        ),
        (
            {"grammar": Grammar(GrammarKind.REGEX, "a", "guided_regex"), "tools": USE},
            "guided_regex",
            "only a schema",
        ),
    ],
)
async def test_what_cannot_be_enforced_names_its_field(
    fields: dict[str, Any], param: str, words: str
) -> None:
    tokenizer = ByteTokenizer()
    grammars = Grammars(tokenizer, Tooling(tokenizer, "auto"))
    with pytest.raises(GrammarError, match=words) as caught:
        await grammars.of(request(**{"tools": None, **fields}))
    grammars.close()
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param}: ")


async def test_only_what_binds_the_answer_is_compiled() -> None:
    tokenizer = ByteTokenizer()
    grammars = Grammars(tokenizer, Tooling(tokenizer, "auto"))
    required = ToolUse(functions=USE.functions, choice=ToolChoice.REQUIRED)
    assert await grammars.of(request(tools=None)) is None
    assert await grammars.of(request()) is None
    assert await grammars.of(request(tools=required)) is not None
    grammars.close()


async def test_compiling_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.target.grammars.COMPILE_S", 0.0)
    tokenizer = ByteTokenizer()
    grammars = Grammars(tokenizer, Tooling(tokenizer, "auto"))
    wanted = request(tools=None, grammar=Grammar(GrammarKind.REGEX, "a", "guided_regex"))
    with pytest.raises(GrammarError, match="0 s to compile"):
        await grammars.of(wanted)
    grammars.close()
