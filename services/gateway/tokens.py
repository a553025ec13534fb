"""POST /tokenize and /detokenize, as vLLM has them: a target of the model does the work."""

from __future__ import annotations

from typing import Annotated, Self, TypeVar

import msgspec
from fastapi import Body as FromBody
from fastapi import FastAPI
from pydantic import Field, model_validator
from starlette.responses import Response

from services.gateway.body import Body, Str
from services.gateway.faults import invalid_value
from services.gateway.messages import Message
from services.gateway.options import TokenId
from services.gateway.pool import RETRY_AFTER_S, Pool
from services.gateway.responses import json_response
from services.gateway.schema import MAX_MESSAGES
from services.gateway.translate import message_fields
from starsd.errors import ProtocolError, TransportError, UnavailableError
from starsd.protocol.tokenizing import (
    DETOKENIZE_PATH,
    TOKENIZE_PATH,
    Detokenize,
    Text,
    Tokenize,
    Tokens,
)
from starsd.upstream import Upstream

WITHIN_S = 60.0
"""A target tokenises one text at a time, about a second a megabyte."""
MAX_IDS = 2**20
ATTEMPTS = 2

Told = TypeVar("Told")


class TokenizeRequest(Body):
    """Either ``prompt`` or ``messages``."""

    model: Str = Field("", description="A name that GET /v1/models lists.")
    prompt: Str | None = Field(None, description="Text in which special tokens may be written.")
    messages: list[Message] | None = Field(
        None, min_length=1, max_length=MAX_MESSAGES, fail_fast=True
    )
    add_special_tokens: bool = Field(
        True, description="Of a prompt: those that begin or end a text of this model."
    )
    add_generation_prompt: bool = Field(
        True, description="Of messages: what asks the model to answer."
    )
    return_token_strs: bool = Field(False, description="Each token as text, too.")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise invalid_value("want either this or messages", field="prompt")
        return self

    def asked(self) -> Tokenize:
        return Tokenize(
            model=self.model,
            messages=[message_fields(message) for message in self.messages or ()],
            prompt=self.prompt,
            special=self.add_special_tokens,
            answer=self.add_generation_prompt,
            spelled=self.return_token_strs,
        )


class DetokenizeRequest(Body):
    model: Str = Field("", description="A name that GET /v1/models lists.")
    tokens: list[TokenId] = Field(max_length=MAX_IDS, fail_fast=True)


class TokensBody(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class TextBody(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str


class Tokenizing:
    """Asks a target of the model, and a second one if the first is not there."""

    def __init__(self, pool: Pool, upstream: Upstream) -> None:
        self._pool = pool
        self._upstream = upstream

    async def tokens(self, asked: Tokenize) -> Tokens:
        return await self._ask(asked.model, TOKENIZE_PATH, asked, Tokens)

    async def text(self, asked: Detokenize) -> Text:
        return await self._ask(asked.model, DETOKENIZE_PATH, asked, Text)

    async def _ask(self, model: str, path: str, asked: msgspec.Struct, kind: type[Told]) -> Told:
        """Raises StarsdError."""
        for _ in range(ATTEMPTS):
            target = self._pool.choose(model)
            try:
                return await self._upstream.call(target.url, path, asked, kind, WITHIN_S)
            except (TransportError, ProtocolError) as error:
                self._pool.failed(target, error.message)
        message = f"{ATTEMPTS} targets failed; try again"
        raise UnavailableError(message, retry_after_s=RETRY_AFTER_S)


def add_tokens(app: FastAPI, tokenizing: Tokenizing) -> None:
    @app.post("/tokenize")
    async def tokenize(body: Annotated[TokenizeRequest, FromBody()]) -> Response:
        """The token ids of a text or of a conversation."""
        found = await tokenizing.tokens(body.asked())
        return json_response(
            TokensBody(
                count=len(found.ids),
                max_model_len=found.max_length,
                tokens=found.ids,
                token_strs=_texts(found.spelling),
            )
        )

    @app.post("/detokenize")
    async def detokenize(body: Annotated[DetokenizeRequest, FromBody()]) -> Response:
        """The text of token ids, special tokens written out."""
        found = await tokenizing.text(Detokenize(model=body.model, ids=body.tokens))
        return json_response(TextBody(prompt=found.text))


def _texts(spelling: list[bytes] | None) -> list[str] | None:
    return None if spelling is None else [token.decode(errors="replace") for token in spelling]
