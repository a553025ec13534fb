"""Trains a draft on dialogues; may be stopped at any moment and goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from starsd.engine.linears import has_bfloat16
from training.batches import Batch
from training.files import replaced
from training.objective import Score, labels, score
from training.plan import Plan
from training.student import Student
from training.teacher import Teacher

SAVE_S = 120.0
CLIP = 0.5
WEIGHT_DECAY = 0.01
BETAS = (0.9, 0.95)

Tell = Callable[[int, Score], None]
"""Hears of each update: how many are done with it, and what it was made of."""


class Trainer:
    """``updates`` counts optimizer steps done, over all runs."""

    def __init__(self, student: Student, teacher: Teacher, plan: Plan, checkpoint: Path) -> None:
        self.student = student
        self._teacher = teacher
        self._plan = plan
        self._checkpoint = checkpoint
        learning = [one for one in student.parameters() if one.requires_grad]
        self._optimizer = torch.optim.AdamW(
            learning, lr=plan.rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        self.updates = 0
        if checkpoint.exists():
            self._resume(torch.load(checkpoint, plan.device, weights_only=True))

    def train(self, batches: Iterable[Batch], until: int, tell: Tell) -> None:
        """Until ``until`` updates are done or the batches end; saves every two minutes."""
        saved = time.monotonic()
        try:
            for batch in batches:
                if self.updates >= until:
                    return
                found = self._update(batch)
                tell(self.updates, found)
                if time.monotonic() > saved + SAVE_S:
                    self.save()
                    saved = time.monotonic()
        finally:
            self.save()

    def _update(self, batch: Batch) -> Score:
        for group in self._optimizer.param_groups:
            group["lr"] = self._plan.rate_at(self.updates)
        self.student.train()
        found = self.judge(batch)
        self._optimizer.zero_grad(set_to_none=True)
        found.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), CLIP)
        self._optimizer.step()
        self.updates += 1
        return found

    def judge(self, batch: Batch) -> Score:
        """How the student does on a batch."""
        features, states = self._teacher.features(batch.tokens, batch.lengths)
        ids = self.student.draft_ids
        wanted = labels(states[:, 1:-1].flatten(0, 1), self._teacher.head, ids)
        device = batch.tokens.device
        with torch.autocast(device.type, torch.bfloat16, enabled=has_bfloat16(device)):
            drafted = self.student.drafted(features, batch.tokens, batch.lengths)
        return score(drafted, self.student.head, wanted, batch.weights[:, 2:])

    @torch.no_grad()
    def acceptance(self, batches: Iterable[Batch]) -> list[float]:
        """By position in a proposal: the share of chains, right so far, whose next token is the
        target's favourite too. What greedy drafts of greedy text would see."""
        self.student.eval()
        judged = agreed = torch.zeros(self.student.steps)
        for batch in batches:
            found = self.judge(batch)
            judged, agreed = judged + found.judged.cpu(), agreed + found.agreed.cpu()
        shares: list[float] = (agreed / judged.clamp(min=1)).tolist()
        return shares

    def save(self) -> None:
        state = {
            "student": self.student.state_dict(),
            "draft_ids": self.student.draft_ids,
            "optimizer": self._optimizer.state_dict(),
            "updates": self.updates,
        }
        with replaced(self._checkpoint) as part:
            torch.save(state, part)

    def _resume(self, state: dict[str, Any]) -> None:
        self.student.load_state_dict(state["student"])
        self.student.draft_ids.copy_(state["draft_ids"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]


def tokens_per_round(acceptance: Sequence[float]) -> float:
    """Of a chain: each position counts if all before it were accepted, and one token is free."""
    total, reached = 1.0, 1.0
    for share in acceptance:
        reached *= share
        total += reached
    return total


def to_device(batch: Batch, device: str) -> Batch:
    moved: list[Tensor] = [part.to(device) for part in batch]
    return Batch(*moved)
