"""Teacher and student before the first update: near something useful, by weights that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoConfig

from starsd.engine.checkpoint import resolve_checkpoint
from starsd.engine.drafts import choose_draft
from starsd.engine.eagle.checkpoint import Head, read_head
from starsd.engine.native.architecture import HeadArchitecture
from starsd.errors import ConfigError
from starsd.settings.model import ModelSettings
from training.batches import draft_vocabulary
from training.head import EagleHead
from training.plan import DRAFT_VOCABULARY, Plan
from training.pruned import PrunedModel
from training.shards import Dialogue
from training.student import Student
from training.teacher import Teacher


def check(plan: Plan, folder: Path) -> None:
    """What need not wait for the dialogues. ``folder`` is the target's.

    Raises:
        ConfigError: layers that the target lacks, none to keep, or ``start`` is no head.
    """
    if plan.start:
        _given(plan, folder)
    there = AutoConfig.from_pretrained(folder).get_text_config().num_hidden_layers
    keeps = plan.kind == "lm"
    last = there - 1 if keeps else there
    if not all(0 <= layer <= last for layer in plan.layers) or (keeps and not plan.layers):
        raise ConfigError(f"layers {list(plan.layers)}: want some of 0 to {last}", param="--layers")


def begin(plan: Plan, folder: Path, dialogues: Sequence[Dialogue]) -> tuple[Teacher, Student]:
    """Deterministic in the plan's seed. ``folder`` is the target's.

    Raises:
        ConfigError: ``start`` is no head for it that can be trained here.
    """
    torch.manual_seed(plan.seed)
    if plan.start:
        return _continued(plan, folder, dialogues)
    if plan.kind == "lm":
        teacher = Teacher(folder, plan.device)
        return teacher, PrunedModel(teacher, plan.layers)
    teacher = Teacher(folder, plan.device, plan.layers)
    ids = draft_vocabulary(dialogues, plan.vocabulary or DRAFT_VOCABULARY, len(teacher.head))
    head = _head(plan, teacher, teacher.head_architecture(len(ids)), ids)
    start_from_target(head, teacher)
    return teacher, head


def _head(plan: Plan, teacher: Teacher, of: HeadArchitecture, ids: Tensor) -> EagleHead:
    head = EagleHead(of, teacher.taps, teacher.embedding.float(), ids, plan.steps)
    return head.to(plan.device)


@torch.no_grad()
def start_from_target(head: EagleHead, teacher: Teacher) -> None:
    """The target's last layer, its head's rows, and the last feature passed on as it is."""
    hidden, layer, mine = head.of.hidden_size, teacher.layers[-1], head.midlayer
    for name in ("q_proj", "k_proj", "v_proj"):
        weight: Tensor = getattr(mine.self_attn, name).weight
        weight[:, :hidden].mul_(0.1)
        weight[:, hidden:].copy_(getattr(layer.self_attn, name).weight)
    mine.self_attn.o_proj.weight.copy_(layer.self_attn.o_proj.weight)
    for name in ("gate_proj", "up_proj", "down_proj"):
        getattr(mine.mlp, name).weight.copy_(getattr(layer.mlp, name).weight)
    mine.hidden_norm.weight.copy_(layer.input_layernorm.weight)
    mine.post_attention_layernorm.weight.copy_(layer.post_attention_layernorm.weight)
    head.fc.weight.mul_(0.1)
    head.fc.weight[:, -hidden:] += torch.eye(hidden, device=head.fc.weight.device)
    head.lm_head.weight.copy_(teacher.head[head.draft_ids])


@torch.no_grad()
def _continued(plan: Plan, folder: Path, dialogues: Sequence[Dialogue]) -> tuple[Teacher, Student]:
    """From a head's own weights and layers. Tokens that it cannot propose but these dialogues say
    take the places of others."""
    given = _given(plan, folder)
    teacher = Teacher(folder, plan.device, given.layers)
    size = plan.vocabulary or len(given.draft_ids)
    ids = draft_vocabulary(dialogues, size, len(teacher.head))
    of = replace(_trainable(plan, given, teacher), draft_vocab_size=len(ids))
    head = _head(plan, teacher, of, ids)
    for name, weight in head.named_parameters():
        told = torch.from_numpy(given.weights.whole(name)).float()
        if weight is head.lm_head.weight:
            told = rows_for(told, torch.from_numpy(given.draft_ids), ids, teacher.head.cpu())
        weight.copy_(told)
    return teacher, head


def rows_for(told: Tensor, known: Tensor, ids: Tensor, target: Tensor) -> Tensor:
    """``[ids, hidden]``: a head's own rows, ``told [known, hidden]``, and for other tokens what
    those would be, by a linear fit of the head's rows to the ``target``'s ``[vocab, hidden]``."""

    def given(tokens: Tensor) -> Tensor:
        return functional.pad(target[tokens].float(), (0, 1), value=1.0)

    rows: Tensor = given(ids) @ torch.linalg.lstsq(given(known), told).solution
    rows[torch.isin(ids, known)] = told[torch.isin(known, ids)]  # both ascend
    return rows


def _given(plan: Plan, folder: Path) -> Head:
    if plan.kind == "lm":
        raise _unfit(plan, "a head, with --kind lm")
    name = choose_draft(plan.start, plan.model)
    return read_head(resolve_checkpoint(ModelSettings(model=plan.model), name), folder)


def _trainable(plan: Plan, given: Head, teacher: Teacher) -> HeadArchitecture:
    """What ``EagleHead`` computes. Raises ConfigError."""
    of = given.of
    if not isinstance(of, HeadArchitecture):
        raise _unfit(plan, "EAGLE-1")
    embedding = torch.from_numpy(given.weights.whole("embed_tokens.weight"))
    theirs = teacher.embedding.cpu()
    other_layers = f"layers {list(given.layers)}, not {list(plan.layers)}"
    faults = {
        other_layers: plan.layers not in ((), given.layers),
        "biases": of.qkv_bias or of.out_bias or of.mlp_bias or of.fc_bias,
        "normalised queries": of.qk_norms,
        "a normalised residual": of.norm_before_residual,
        "an embedding of its own": not torch.equal(embedding.to(theirs.dtype), theirs),
    }
    if found := [fault for fault, there in faults.items() if there]:
        raise _unfit(plan, ", ".join(found))
    return of


def _unfit(plan: Plan, reason: str) -> ConfigError:
    return ConfigError(f"--start {plan.start}: cannot go on from {reason}", param="--start")
