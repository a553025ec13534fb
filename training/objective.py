"""What a draft head is trained for, and how well it would do: the target's own distribution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

STEP_DECAY = 0.8
"""Later self-fed steps count less: they matter only if the earlier ones were accepted."""
CHUNK = 128
"""Rows of logits at a time: what is computed of them stays in a CPU's cache."""


@dataclass(frozen=True)
class Labels:
    """What the target says at each of ``n`` places: its distribution within the draft vocabulary
    ``wanted [n, vocab]``, and whether its favourite is in there, ``known [n]``."""

    wanted: Tensor
    known: Tensor


@dataclass(frozen=True)
class Score:
    """Of one batch: the loss, and per self-fed step the chains that were right until there and,
    among them, those whose favourite is the target's again (``[steps]`` each)."""

    loss: Tensor
    judged: Tensor
    agreed: Tensor


@torch.no_grad()
def labels(states: Tensor, favourites: Tensor, head: Tensor, draft_ids: Tensor) -> Labels:
    """From the target's final states ``[n, hidden]``, its favourites ``[n]`` and its head
    ``[vocabulary, hidden]``."""
    of_draft = head if len(draft_ids) == len(head) else head[draft_ids]
    wanted = torch.empty(len(states), len(draft_ids), dtype=states.dtype, device=states.device)
    for part in _chunks(len(states)):
        wanted[part] = (states[part] @ of_draft.T).float().softmax(-1).to(states.dtype)
    return Labels(wanted, torch.isin(favourites, draft_ids))


def score(drafted: list[Tensor], lm_head: Tensor, found: Labels, weights: Tensor) -> Score:
    """Cross-entropy against the target's distribution within the draft vocabulary.

    ``drafted[s] [b, t - s, hidden]`` are normalised states of self-fed step ``s``, which through
    ``lm_head [vocab, hidden]`` guess what ``found`` of the ``[b, t]`` places from place ``s`` on
    says (see ``EagleHead.forward``); ``weights [b, t]`` say how much each place counts. Where the
    target's favourite is outside the draft vocabulary no guess is right: it weighs nothing in the
    loss (as in EAGLE-3), and counts as missed.
    """
    batch, length = weights.shape
    wanted = found.wanted.view(batch, length, -1)
    known = found.known.view(batch, length)
    counted, right = weights >= 1.0, torch.ones_like(weights, dtype=torch.bool)
    losses, judged, agreed = [], [], []
    for step, states in enumerate(drafted):
        weight, goal, in_reach = weights[:, step:], wanted[:, step:], known[:, step:]
        scale = weight * in_reach / weight.sum().clamp(min=1.0)
        loss, same = _cross_entropy(states, lm_head, goal, scale)
        losses.append(loss * STEP_DECAY**step)
        right = right[:, : length - step] & counted[:, step:]
        judged.append(right.sum())
        right = right & same & in_reach
        agreed.append(right.sum())
    total = sum(STEP_DECAY**step for step in range(len(drafted)))
    return Score(torch.stack(losses).sum() / total, torch.stack(judged), torch.stack(agreed))


def _cross_entropy(
    states: Tensor, lm_head: Tensor, wanted: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """The summed loss of ``states [b, t, hidden]``, and where the favourites agree ``[b, t]``."""
    flat = (states.flatten(0, 1), lm_head, wanted.flatten(0, 1), scale.flatten())
    loss, same = _CrossEntropy.apply(*flat)  # type: ignore[no-untyped-call]
    return loss, same.view(scale.shape)


class _CrossEntropy(torch.autograd.Function):
    """Head, softmax and soft cross-entropy in one, a chunk of rows at a time.

    The gradient is made on the way forward (``(softmax - wanted) * scale``), while its logits are
    still in the cache.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, lm_head: Tensor, wanted: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``states [n, hidden]``, ``wanted [n, vocab]``, ``scale [n]``; the summed loss, and where
        the favourites agree ``[n]``."""
        narrow = lm_head.to(wanted.dtype)
        inputs = states.detach().to(wanted.dtype)
        slopes = torch.empty_like(wanted)
        loss = torch.zeros((), device=states.device)
        same = torch.empty(len(states), dtype=torch.bool, device=states.device)
        for part in _chunks(len(states)):
            logits = (inputs[part] @ narrow.T).float()
            goal = wanted[part].float()
            same[part] = _agree(logits, goal)
            sure = logits.logsumexp(-1)
            loss += ((sure - (goal * logits).sum(-1)) * scale[part]).sum()
            slopes[part] = logits.sub_(sure[:, None]).exp_().sub_(goal).mul_(scale[part][:, None])
        ctx.save_for_backward(slopes @ narrow, slopes.T @ inputs)
        ctx.mark_non_differentiable(same)
        return loss, same

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor, Tensor, None, None]:
        of_states, of_head = ctx.saved_tensors
        return of_states * slopes[0], of_head.float() * slopes[0], None, None


def _agree(logits: Tensor, goal: Tensor) -> Tensor:
    """Where the greatest of both is at the same place; ``argmax`` takes far longer on a CPU."""
    ours, theirs = logits >= logits.amax(-1, True), goal >= goal.amax(-1, True)
    return (ours & theirs).any(-1)


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, CHUNK):
        yield slice(start, min(count, start + CHUNK))
