"""Grammars of requests, compiled once at the front so that a bad one is an error before anything
was promised, and never reaches the step loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from services.target.tooling import Tooling
from starsd.engine.interface import Tokenizer
from starsd.errors import GrammarError
from starsd.grammar.compiler import GrammarCompiler
from starsd.protocol.events import Generate

COMPILE_S = 5.0
"""Longest wait. Bounds keep compiling to a second at the very worst, behind those before it."""


class Grammars:
    """Of one model. Its tokens are prepared when the first grammar comes."""

    def __init__(self, tokenizer: Tokenizer, tooling: Tooling) -> None:
        self._tokenizer = tokenizer
        self._tooling = tooling
        self._compiler: GrammarCompiler | None = None
        # One thread beside the event loop: compiling drops the GIL.
        self._thread = ThreadPoolExecutor(1, "grammar")

    async def of(self, request: Generate) -> str | None:
        """What all of its answer must match; None: it is free.

        Raises:
            GrammarError: wrong, too large, or nothing matches it; with the field it came from.
        """
        if request.grammar is None and request.tools is None:
            return None
        field = "tools" if request.grammar is None else request.grammar.param
        loop = asyncio.get_running_loop()
        try:
            compiling = loop.run_in_executor(self._thread, self._compiled, request)
            return await asyncio.wait_for(compiling, COMPILE_S)
        except TimeoutError as error:
            late = f"{field}: it took over {COMPILE_S:g} s to compile"
            raise GrammarError(late, param=field) from error
        except GrammarError as error:
            raise GrammarError(f"{field}: {error.message}", param=field) from error

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _compiled(self, request: Generate) -> str | None:
        definition = self._tooling.grammar(request)
        if definition is None:
            return None
        if self._compiler is None:
            size = self._tokenizer.vocab_size
            self._compiler = GrammarCompiler(self._tokenizer.grammar_tokenizer(size), size)
        self._compiler.start(definition, self._tokenizer.eos_ids)
        return definition
