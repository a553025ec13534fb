"""``starsd train-draft``: sample, train, write. The same command again goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import disk_usage
from typing import Any

import torch
from filelock import FileLock, Timeout
from transformers import PreTrainedTokenizerFast

from starsd.engine.checkpoint import resolve_checkpoint, weights_revision
from starsd.engine.loading import load_model
from starsd.errors import ConfigError
from starsd.process.spawn import keep_heap
from starsd.sampling import compiled
from starsd.settings.model import ModelSettings
from training.batches import Batch, batches, split
from training.chats import read_chats, unanswered
from training.curve import Curve, Point
from training.dialogues import EngineSpeaker, Speaker, collect
from training.files import replaced
from training.frame import chat_frame
from training.kept import Kept
from training.objective import Score
from training.plan import WINDOW, Plan
from training.requests import request
from training.result import plot, write
from training.shards import Dialogue, Shards, copy_shards
from training.start import begin, check
from training.starters import STARTERS, TASKS
from training.trainer import Trainer, to_device
from training.vllm import VllmSpeaker

SPEAKERS = 64
"""Dialogues sampled at once: each step of the target serves all of them."""
DIALOGUE_LENGTH = 1024
JUDGE_EVERY = 200
JUDGED_TOKENS = 30_000

Tell = Callable[[str, float, str], None]
"""Hears of progress: phase, share done, and how it goes."""


@dataclass(frozen=True)
class Place:
    """Where a run keeps its things."""

    out: Path

    @property
    def dialogues(self) -> Path:
        return self.out / "dialogues"

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    @property
    def curve(self) -> Path:
        return self.out / "curve.jsonl"


def train_draft(plan: Plan, tell: Tell) -> list[float]:
    """All phases; acceptance by position on held-out dialogues.

    Raises:
        ConfigError: a target without a usable chat template, layers that it lacks, an unreadable
            file of chats, no dialogues where some are said to be, a head that cannot be gone on
            from, or a folder that holds another plan's run or a run that goes on.
    """
    place = Place(plan.out)
    settings = ModelSettings(
        model=plan.model,
        device=plan.device,
        threads=plan.threads,
        max_sequences=SPEAKERS,
        max_length=DIALOGUE_LENGTH,
    )
    folder = resolve_checkpoint(settings)
    check(plan, folder)
    with _alone(plan.out):
        _claim(plan)
        dialogues = _sampled(plan, settings, folder, place, tell)
        return _trained(plan, folder, dialogues, place, tell)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / "run.lock", timeout=0):
            yield
    except Timeout as error:
        raise ConfigError(f"{out}: another run is at work there", param="out") from error


def _claim(plan: Plan) -> None:
    """A folder belongs to one plan; a larger budget may be asked of it later."""
    path = plan.out / "plan.json"
    grown = {"out", "tokens", "passes", "threads", "device", "chats", "sampler", "keep_gb"}
    if path.exists():
        before = Plan.model_validate_json(path.read_text())
        if before.model_dump(exclude=grown) != plan.model_dump(exclude=grown):
            raise ConfigError(f"{plan.out}: holds a run of another plan, {before!r}", param="out")
    with replaced(path) as part:
        part.write_text(plan.model_dump_json(indent=2) + "\n")


def _sampled(
    plan: Plan, settings: ModelSettings, folder: Path, place: Place, tell: Tell
) -> list[Dialogue]:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    if plan.data:
        copy_shards(plan.data, place.dialogues)
    shards = Shards(place.dialogues, len(tokenizer))

    def heard(held: int) -> None:
        tell("sampling", min(1.0, held / plan.tokens), f"{held:,} tokens")

    heard(shards.tokens)
    if shards.tokens < plan.tokens:
        speaker = _speaker(plan, settings, folder, tokenizer, shards)
        collect(speaker, shards, plan.tokens, heard)
    return list(shards)


def _speaker(
    plan: Plan,
    settings: ModelSettings,
    folder: Path,
    tokenizer: Any,
    shards: Shards,
) -> Speaker:
    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return found

    frame = chat_frame(folder)
    chats = read_chats(plan.chats) if plan.chats else []
    asked = [[ids(turn) for turn in chat] for chat in chats]
    options: dict[str, Any] = {
        "seed": plan.seed,
        "first_number": shards.next_number,
        "chats": unanswered(asked, frame, shards),
        "starters": [ids(starter) for starter in STARTERS],
        "tasks": [ids(f"{task}\n\n") for task in TASKS],
        "compose": lambda chance: [ids(turn) for turn in request(chance)],
    }
    model = load_model(settings)
    eos = frozenset(model.tokenizer().eos_ids)
    if plan.sampler == "vllm":
        size = {"at_once": SPEAKERS, "max_length": settings.max_length}
        return VllmSpeaker(str(folder), frame, eos, **size, **options)
    compiled.install(settings.cache_dir)
    return EngineSpeaker(model.runner(), frame, eos, **options)


def _trained(
    plan: Plan, folder: Path, dialogues: list[Dialogue], place: Place, tell: Tell
) -> list[float]:
    keep_heap()
    torch.set_num_threads(plan.threads)
    kept, held_out = split(dialogues)
    teacher, student = begin(plan, folder, kept)
    trainer = Trainer(student, teacher, plan, place.checkpoint)
    judged = [to_device(batch, plan.device) for batch in _for_judging(plan, held_out)]
    passes = _passes(plan, kept, trainer.updates)
    with (
        closing(passes) as training,
        closing(Kept(plan.out, _keeps(plan))) as teacher.kept,
        Curve(place.curve, trainer.updates) as curve,
    ):

        def judge() -> list[float]:
            found = trainer.acceptance(_watched(judged, tell))
            curve.judged(trainer.updates, found)
            return found

        def heard(update: int, score: Score) -> None:
            curve.update(update, score)
            if update % JUDGE_EVERY == 0 and update < plan.updates:
                judge()
            tell("training", update / plan.updates, str(curve.last))

        if plan.start and not trainer.updates:
            judge()
        trainer.train(training, plan.updates, heard)
        acceptance = judge()
    tokens = sum(len(one.tokens) for one in dialogues)
    facts = Point(trainer.updates, tokens, acceptance)
    write(trainer.student, plan, folder, weights_revision(folder), facts)
    plot(place.curve, plan.out / "curve.png")
    return acceptance


def _keeps(plan: Plan) -> float:
    """Bytes of disk for what the target computed; a single pass needs none of it again."""
    free = disk_usage(plan.out).free
    return min(plan.keep_gb * 1e9, free / 2) if plan.passes > 1 else 0.0


def _passes(plan: Plan, dialogues: list[Dialogue], done: int) -> Generator[Batch, None, None]:
    """Endless, and from where the updates ``done`` ended."""
    seen = 0
    for number in count():
        for batch in batches(dialogues, window=WINDOW, tokens=plan.batch_tokens, seed=number):
            seen += 1
            if seen > done:
                yield to_device(batch, plan.device)


def _watched(judged: Sequence[Batch], tell: Tell) -> Iterator[Batch]:
    """Minutes on a slow machine."""
    for number, batch in enumerate(judged):
        tell("judging", number / len(judged), f"{number} of {len(judged)} batches")
        yield batch
    tell("judging", 1.0, "")


def _for_judging(plan: Plan, dialogues: list[Dialogue]) -> Iterator[Batch]:
    judged = 0
    for batch in batches(dialogues, window=WINDOW, tokens=plan.batch_tokens, seed=0):
        if judged < JUDGED_TOKENS:
            judged += int(batch.lengths.sum())
            yield batch
