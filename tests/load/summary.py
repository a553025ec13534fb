"""What a run comes to, read from Locust's own counters, which it also adds up over workers."""

# Locust is typed, but not its events and entries.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import logging
from collections.abc import Iterator

from locust.env import Environment
from locust.runners import WorkerRunner
from locust.stats import RequestStats, StatsEntry, console_logger

METRIC = "metric"
TTFT, TPOT, RATE = "TTFT", "TPOT", "tokens/s"
OUTPUT, PROPOSED, ACCEPTED = "output tokens", "proposed tokens", "accepted tokens"
_noted: list[str] = []


def need_answers(environment: Environment, **_: object) -> None:
    """A run without one right answer fails."""
    if isinstance(environment.runner, WorkerRunner) or _metric(environment.stats, OUTPUT):
        return
    logging.error("no right answer came")
    assert environment.parsed_options is not None
    environment.process_exit_code = environment.parsed_options.exit_code_on_error


def note(environment: Environment, **_: object) -> None:
    """When the users have stopped, and again when the last worker has reported; which is last
    depends on who ends the run. ``--json`` clears the counters before ``tell``."""
    if not isinstance(environment.runner, WorkerRunner):
        _noted[:] = lines(environment.stats)


def tell(**_: object) -> None:
    """To where Locust has printed its tables."""
    for line in _noted:
        console_logger.info(line)


def lines(stats: RequestStats) -> Iterator[str]:
    requests = [entry for (_, kind), entry in stats.entries.items() if kind == "POST"]
    failures = sum(error.occurrences for error in stats.errors.values())
    yield f"{sum(entry.num_requests for entry in requests):,} requests, {failures:,} failures"
    if output := _metric(stats, OUTPUT):
        seconds = (stats.last_request_timestamp or stats.start_time) - stats.start_time
        tokens = output.total_response_time
        yield f"{tokens:,} tokens in {seconds:.1f} s: {tokens / seconds:.1f} tokens/s in all"
    for name in (TTFT, TPOT):
        if entry := _metric(stats, name):
            yield f"{name} {_spread(entry)}"
    proposed, accepted = _metric(stats, PROPOSED), _metric(stats, ACCEPTED)
    if proposed and accepted and (total := proposed.total_response_time):
        taken = accepted.total_response_time
        yield f"{taken:,} of {total:,} proposed tokens accepted: {taken / total:.2f}"


def _metric(stats: RequestStats, name: str) -> StatsEntry | None:
    return stats.entries.get((name, METRIC))


def _spread(entry: StatsEntry) -> str:
    p50, p95 = (entry.get_response_time_percentile(share) for share in (0.5, 0.95))
    return f"mean {entry.avg_response_time:.1f} ms, p50 {p50} ms, p95 {p95} ms"
