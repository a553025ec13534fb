"""A ``MiniStar`` of targets that say everything in their states, and a hub with a head."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from services.target.features import Features
from starsd.bus.memory import MemoryHubBus
from starsd.drafters.eagle import EagleDrafter
from starsd.engine.interface import HeadOutput, HeadRow
from starsd.process.parts import Parts
from starsd.protocol.frames import Submit
from starsd.protocol.pods import Offer
from starsd.protocol.sampling import SamplingParams
from starsd.settings.draft import DraftSettings
from tests.ministar import DRAFT_STEP_S, MiniStar, Pod
from tests.scripted import EOS
from tests.scripted_head import ScriptedHead, features_of, head_offer, make_target, state_after

PATIENT: dict[str, Any] = {"wait_budget": 100.0, "ngram": 0}
"""Targets that wait for every proposal, and make none."""


class TimedHead:
    """Each forward of a head takes ``DRAFT_STEP_S`` of a star's time."""

    def __init__(self, head: ScriptedHead, star: MiniStar) -> None:
        self._head = head
        self._star = star

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)

    def forward(self, rows: Sequence[HeadRow]) -> list[HeadOutput]:
        self._star.clock.now += DRAFT_STEP_S
        return self._head.forward(rows)


class HeadStar(MiniStar):
    """Before every step it proves what the targets keep of their states."""

    def __init__(self, head: ScriptedHead | None, targets: int = 1, **given: Any) -> None:
        """``given``: ``target`` and ``draft`` settings, ``bus_type``, ``runners``."""
        hub = {name: given.pop(name) for name in ("draft", "bus_type") if name in given}
        runners = given.pop("runners", None) or [make_target() for _ in range(targets)]
        super().__init__(runners, target=PATIENT | given.pop("target", {}), **given)
        self.on_step = self.check_features
        self.checked = 0
        if head is not None:
            self.start_head(
                head, **hub.get("draft", {}), bus_type=hub.get("bus_type", MemoryHubBus)
            )

    def start_head(
        self,
        head: ScriptedHead,
        boot: str = "h",
        offer: Offer | None = None,
        bus_type: type[MemoryHubBus] = MemoryHubBus,
        **settings: Any,
    ) -> None:
        given: dict[str, Any] = {"id": "hub", "boot": boot, "draft_candidates": 0}
        draft = DraftSettings(**given | {"draft_confidence": 0.0} | settings)
        parts = Parts(clock=self.clock)
        drafter = EagleDrafter(TimedHead(head, self), draft, parts)
        self.run_hub(drafter, offer or head_offer(head, draft.max_depth), draft, parts, bus_type)

    def check_features(self) -> None:
        """What is kept ends where the KV does, and is what those positions' states were."""
        for pod in self.pods:
            for sequence in pod.loop._running.values():
                window = features(pod)._windows.get(sequence.slot)
                if window is not None:
                    assert window.end == sequence.cached
                    for position in range(window.begin, window.end):
                        want = features_of(state_after(sequence.tokens[: position + 1]))
                        assert np.array_equal(window.read(position, position + 1)[0], want)
                        self.checked += 1


def features(pod: Pod) -> Features:
    return pod.loop._features


def make_request(
    name: str, prompt: Sequence[int], max_tokens: int = 30, temperature: float = 0.8
) -> Submit:
    sampling = SamplingParams(seed=len(prompt), temperature=temperature, prompt_len=len(prompt))
    return Submit(
        id=name, prompt=list(prompt), sampling=sampling, max_tokens=max_tokens, eos=(EOS,)
    )


def make_requests(count: int = 4, longest: int = 60, max_tokens: int = 30) -> list[Submit]:
    """No two begin alike; every other one is greedy."""
    choose = random.Random(count)
    return [
        make_request(
            f"r{index}",
            [index, *choose.choices(range(256), k=choose.randint(3, longest))],
            max_tokens,
            0.8 * (index % 2),
        )
        for index in range(count)
    ]


def plain(requests: list[Submit]) -> list[list[int]]:
    """The texts when nobody drafts."""
    with HeadStar(None, target={"drafting": False}) as star:
        return [answer.tokens for answer in star.run(requests)]
