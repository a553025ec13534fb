"""The tool formats we read and enforce, and which of them a chat template means."""

from __future__ import annotations

from enum import StrEnum

from starsd.tools.parser import Markup
from starsd.tools.scanner import JsonCall, NamedCall, Scanner


class ToolFormat(StrEnum):
    HERMES = "hermes"  # Hermes 2 and 3, Qwen 2.5 and 3, SmolLM
    LLAMA3_JSON = "llama3_json"  # Llama 3.1 and later
    MISTRAL = "mistral"


def _mistral(in_list: bool) -> Scanner:
    return JsonCall() if in_list else NamedCall()


MARKUP = {
    ToolFormat.HERMES: Markup("<tool_call>", lambda _: JsonCall(), closing="</tool_call>"),
    ToolFormat.LLAMA3_JSON: Markup(
        "<|python_tag|>", lambda _: JsonCall(bare=True), separator=";", leading=True
    ),
    ToolFormat.MISTRAL: Markup("[TOOL_CALLS]", _mistral),
}


def of_template(template: str) -> ToolFormat:
    """What the models of this chat template write; Hermes' format where it says nothing."""
    if "[TOOL_CALLS]" in template:
        return ToolFormat.MISTRAL
    if "<|python_tag|>" in template or '"parameters": dictionary' in template:
        return ToolFormat.LLAMA3_JSON
    return ToolFormat.HERMES
