"""What shape an answer must have: OpenAI's response_format, and vLLM's fields for the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, Field, PlainValidator, model_validator

from services.gateway.body import Body, Str, encodable
from services.gateway.faults import invalid_value
from services.gateway.unserved import STRUCTURED_OUTPUTS
from starsd.protocol.grammar import Grammar, GrammarKind

ANY_OBJECT = '{"type":"object"}'


def portable(value: Any) -> Any:
    """JSON that any of our services can read. Raises PydanticCustomError: nested too deeply, half
    a surrogate pair."""
    try:
        msgspec.json.encode(value)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise invalid_value(f"not JSON that can be used: {error}") from error
    return value


Schema = Annotated[dict[str, Any], AfterValidator(portable)]


def _object_or_text(schema: Any) -> Any:
    if not isinstance(schema, dict | str):
        raise invalid_value("want a JSON schema, as an object or as text", schema)
    return encodable(schema) if isinstance(schema, str) else portable(schema)


AnySchema = Annotated[
    dict[str, Any] | str,
    PlainValidator(_object_or_text, json_schema_input_type=dict[str, Any] | str),
]


class NamedSchema(Body):
    """``name`` and ``description`` say nothing to a model that is bound to the schema anyway."""

    name: Str
    description: Str | None = None
    schema_: Schema | None = Field(None, alias="schema", description="A JSON schema.")
    strict: bool = Field(False, description="Answers always match, whatever this says.")


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = Field(None, description="Of type json_schema.")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.json_schema is None) == (self.type == "json_schema"):
            right = "needed for type json_schema, and only there"
            raise invalid_value(right, field="json_schema")
        return self

    @property
    def source(self) -> str | None:
        """As a schema."""
        if self.type == "text":
            return None
        given = self.json_schema.schema_ if self.json_schema else None
        return ANY_OBJECT if given is None else _text(given)


class StructuredOutputs(Body):
    """vLLM's: one of these."""

    unserved = STRUCTURED_OUTPUTS

    json_: AnySchema | None = Field(None, alias="json", description="A JSON schema.")
    regex: Str | None = None
    choice: list[Str] | None = None
    grammar: Str | None = Field(None, description="Lark (llguidance's) or GBNF.")
    json_object: bool = False


class Shape(Body):
    """The fields that say it. One of them at most."""

    response_format: ResponseFormat | None = Field(
        None, description="What the whole answer is: any JSON object, or one of a schema."
    )
    structured_outputs: StructuredOutputs | None = Field(
        None, description="The same, or a regex, one of some texts, a grammar (vLLM)."
    )
    guided_json: AnySchema | None = Field(None, description="As structured_outputs.json.")
    guided_regex: Str | None = Field(None, description="As structured_outputs.regex.")
    guided_choice: list[Str] | None = Field(None, description="As structured_outputs.choice.")
    guided_grammar: Str | None = Field(None, description="As structured_outputs.grammar.")

    @property
    def grammar(self) -> Grammar | None:
        return next(self._grammars(), None)

    def _grammars(self) -> Iterator[Grammar]:
        own, wanted = self.response_format, self.structured_outputs or StructuredOutputs()
        if own is not None and own.source is not None:
            yield Grammar(GrammarKind.JSON, own.source, "response_format")
        if wanted.json_object:
            yield Grammar(GrammarKind.JSON, ANY_OBJECT, "structured_outputs.json_object")
        given = {
            "guided_json": (GrammarKind.JSON, self.guided_json),
            "guided_regex": (GrammarKind.REGEX, self.guided_regex),
            "guided_choice": (GrammarKind.CHOICE, self.guided_choice),
            "guided_grammar": (GrammarKind.LARK, self.guided_grammar),
            "structured_outputs.json": (GrammarKind.JSON, wanted.json_),
            "structured_outputs.regex": (GrammarKind.REGEX, wanted.regex),
            "structured_outputs.choice": (GrammarKind.CHOICE, wanted.choice),
            "structured_outputs.grammar": (GrammarKind.LARK, wanted.grammar),
        }
        for field, (kind, source) in given.items():
            if source is not None:
                yield Grammar(kind, source if isinstance(source, str) else _text(source), field)

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        fields = [grammar.param for grammar in self._grammars()]
        if len(fields) > 1:
            right = f"an answer has one shape; there is {fields[0]}, too"
            raise invalid_value(right, field=fields[1])
        return self


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
