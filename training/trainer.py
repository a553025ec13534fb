"""Trains a draft on dialogues; may be stopped at any moment and goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

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
        self._optimizers = optimizers(student, plan.rate)
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
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._plan.rate_at(self.updates)
        self.student.train()
        found = self.judge(batch)
        self.student.zero_grad(set_to_none=True)
        found.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), CLIP)
        for optimizer in self._optimizers:
            optimizer.step()
        self.updates += 1
        return found

    def judge(self, batch: Batch) -> Score:
        """How the student does on a batch."""
        teacher = self._teacher
        lesson = teacher.lesson(batch.tokens, batch.lengths)
        states, said = (part[:, 1:-1].flatten(0, 1) for part in (lesson.states, lesson.favourites))
        wanted = labels(states, said, teacher.head, self.student.draft_ids)
        narrow = teacher.dtype is torch.bfloat16
        with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=narrow):
            drafted = self.student.drafted(lesson.features, batch.tokens, batch.lengths)
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
            "optimizers": [one.state_dict() for one in self._optimizers],
            "updates": self.updates,
        }
        with replaced(self._checkpoint) as part:
            torch.save(state, part)

    def _resume(self, state: dict[str, Any]) -> None:
        self.student.load_state_dict(state["student"])
        self.student.draft_ids.copy_(state["draft_ids"])
        for optimizer, held in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(held)
        self.updates = state["updates"]


def optimizers(student: Student, rate: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024, scaled as by Liu et al. 2025, so that AdamW's rate serves both)
    for the matrices of layers, AdamW for the head and all vectors."""
    learning = [one for one in student.parameters() if one.requires_grad]
    matrices = [one for one in learning if one.ndim == 2 and one is not student.head]
    others = [one for one in learning if one.ndim != 2 or one is student.head]
    muon = torch.optim.Muon(
        matrices, lr=rate, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(others, lr=rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True)
    return [muon, adamw]


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
