"""Functions that the model may call."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, PlainValidator, model_validator

from services.gateway.body import Body, Str
from services.gateway.faults import invalid_value
from services.gateway.shape import Schema
from starsd.protocol.tools import Function, ToolUse
from starsd.protocol.tools import ToolChoice as Choice

MAX_TOOLS = 128
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class FunctionSpec(Body):
    name: Name
    description: Str | None = None
    parameters: Schema | None = Field(None, description="A JSON schema; default: none.")
    strict: bool = Field(False, description="Arguments always match parameters.")


class Tool(Body):
    type: Literal["function"]
    function: FunctionSpec


class FunctionName(Body):
    name: Str


class NamedTool(Body):
    type: Literal["function"]
    function: FunctionName


Word = Literal["none", "auto", "required"]


def _word_or_function(choice: Any) -> Any:
    if isinstance(choice, dict):
        return NamedTool.model_validate(choice)
    if choice not in get_args(Word):
        raise invalid_value(f"want one of {get_args(Word)}, or the function to call", choice)
    return choice


ToolChoice = Annotated[
    Word | NamedTool, PlainValidator(_word_or_function, json_schema_input_type=Word | NamedTool)
]


class Tooled(Body):
    """The fields about tools."""

    tools: list[Tool] = Field(
        [], max_length=MAX_TOOLS, fail_fast=True, description="Functions the model may call."
    )
    tool_choice: ToolChoice | None = Field(
        None,
        description="none: it may not; auto: as it likes; required: at least one; or the one to "
        "call. Default: auto.",
    )
    parallel_tool_calls: bool = Field(True, description="Several calls in one answer.")

    @property
    def tool_use(self) -> ToolUse | None:
        """None: the model hears of no tools."""
        choice = self.tool_choice or "auto"
        if not self.tools or choice == "none":
            return None
        return ToolUse(
            functions=tuple(_function(tool.function) for tool in self.tools),
            choice=Choice.REQUIRED if choice == "required" else Choice.AUTO,
            name=choice.function.name if isinstance(choice, NamedTool) else None,
            parallel=self.parallel_tool_calls,
        )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [tool.function.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise invalid_value("two functions have one name", names, field="tools")
        if self.tool_choice in (None, "none", "auto"):
            return self
        if not names:
            raise invalid_value("there are no tools", self.tool_choice, field="tool_choice")
        named = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None
        if named is not None and named not in names:
            raise invalid_value("want the name of one of the tools", named, field="tool_choice")
        return self


def _function(spec: FunctionSpec) -> Function:
    return Function(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        strict=spec.strict,
    )
