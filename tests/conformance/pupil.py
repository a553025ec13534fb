"""A scripted model that has learnt what LangChain's suite asks; anything else it repeats.

Whether a model is clever enough is not in question here: what it says must arrive.
"""

from __future__ import annotations

import json

from tests.conformance.clients.asked import call_of
from tests.scripted import EchoModel

_JOKE = json.dumps({"setup": "Why do cats like stars?", "punchline": "They are light."})
_CUSTOMERS = {"你好": "你好啊集团", "こんにちは": "こんにちは株式会社"}
ANSWERS = {
    "magic_function_no_args": call_of("magic_function_no_args", {}),
    "magic_function": call_of("magic_function", {"input": 3}),
    "Hello!": call_of("magic_function", {"input": 3}),
    "Pirate": call_of("greeting_generator", {"answer_style": "pirate"}),
    "weather": call_of("get_weather", {"location": "San Francisco, CA"}),
    "joke": _JOKE,
    **{
        asked: call_of("unicode_customer", {"customer_name": name, "description": "a company"})
        for asked, name in _CUSTOMERS.items()
    },
}


class PupilModel(EchoModel):
    def answer(self, message: bytes) -> bytes:
        text = message.decode(errors="replace")
        return next((ANSWERS[key] for key in ANSWERS if key in text), text).encode()
