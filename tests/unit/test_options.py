"""Every option has tests that show what it changes: those named here.

A new setting or command-line option fails ``test_every_option_has_its_proof`` until it is listed.
Several tests stand where services read the option in code of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from starsd.cli.main import app
from starsd.cli.reference import SECTIONS, entries
from starsd.settings import PREFIX

ROOT = Path(__file__).parents[2]
UNIT, REAL = "tests/unit", "tests/integration"
ADDRESSES = f"{REAL}/fronts/test_addresses.py::test_host_and_ports"
BENCH = f"{UNIT}/cli/test_bench.py"
CHAT = f"{UNIT}/cli/test_main.py::test_chat_asks_as_its_options_say"
CHECK = f"{UNIT}/cli/test_check.py"
DRAFTER = f"{UNIT}/drafters/test_lm.py"
ENGINE = f"{UNIT}/engine"
FRONT = f"{UNIT}/process/test_front.py"
GATEWAY = f"{REAL}/gateway/test_settings.py"
PEERS = f"{UNIT}/bench_peers"
PEERS_CLI = f"{UNIT}/cli/test_peers.py"
SERVICES = f"{REAL}/test_services.py"
SESSIONS = f"{UNIT}/draft/test_sessions.py"
SPEED = f"{UNIT}/bench/test_speed.py"
STAR = f"{UNIT}/target/test_star_settings.py"
STEP = f"{UNIT}/target/test_step.py"
TARGET_FRONT = f"{UNIT}/target/test_front.py"
UP = f"{UNIT}/cli/test_up.py"

PROOFS: dict[str, dict[str, tuple[str, ...]]] = {
    "Every service": {
        "host": (ADDRESSES, f"{GATEWAY}::test_host_and_ports"),
        "port": (f"{GATEWAY}::test_host_and_ports",),
        "metrics_port": (f"{GATEWAY}::test_host_and_ports",),
        "log_level": (f"{UNIT}/test_log.py::test_log_level", f"{SERVICES}::test_log_level"),
        "log_json": (
            f"{UNIT}/test_log.py::test_log_json",
            f"{SERVICES}::test_log_json_of_both_processes",
        ),
    },
    "Redis (every service)": {
        "redis_url": (
            f"{UNIT}/target/test_loop.py::test_redis_url",
            f"{UNIT}/draft/test_loop.py::test_redis_url",
            f"{REAL}/fronts/test_star_heartbeat.py::test_a_target_learns_of_a_hub_and_of_its_end",
            f"{REAL}/gateway/test_process.py"
            "::test_serves_and_starts_without_redis_and_ends_on_sigterm",
        ),
        "namespace": (
            f"{SERVICES}::test_namespaces_keep_stars_apart",
            f"{SERVICES}::test_a_gateway_finds_the_targets_of_its_own_star",
        ),
        "heartbeat_s": (f"{FRONT}::test_heartbeat_s", f"{GATEWAY}::test_heartbeat_s"),
    },
    "Pod (target and draft)": {
        "id": (f"{FRONT}::test_id_and_boot",),
        "boot": (f"{FRONT}::test_id_and_boot",),
        "pod_ttl_s": (
            f"{FRONT}::test_pod_ttl_s",
            f"{UNIT}/test_settings.py::test_pod_ttl_s_outlives_a_heartbeat",
        ),
    },
    "Model (target and draft)": {
        "model": (
            f"{ENGINE}/test_checkpoint.py::test_local_folder_as_is",
            f"{TARGET_FRONT}::test_serves_only_while_the_loop_moves",
        ),
        "revision": (f"{ENGINE}/test_checkpoint.py::test_hub_name",),
        "dtype": (f"{ENGINE}/test_pretrained.py::test_dtype",),
        "quantize": (
            f"{ENGINE}/test_pretrained.py::test_quantize",
            f"{UNIT}/test_settings.py::test_quantised_models_have_their_own_types_and_place",
        ),
        "compiled": (f"{ENGINE}/test_pretrained.py::test_compiled",),
        "device": (f"{ENGINE}/test_pretrained.py::test_device",),
        "cache_dir": (f"{ENGINE}/test_checkpoint.py::test_bundled_is_converted_once",),
        "scripted": (f"{ENGINE}/test_loading.py::test_scripted_model",),
        "max_sequences": (f"{ENGINE}/test_runner.py::test_memory_is_taken_once",),
        "max_length": (f"{ENGINE}/test_runner.py::test_memory_is_taken_once",),
        "prefill_chunk": (
            f"{STEP}::test_prompt_is_prefilled_in_chunks",
            f"{DRAFTER}::test_prefix_job_ends_idle_without_proposing",
        ),
        "step_tokens": (
            f"{STEP}::test_tokens_of_a_step_are_bounded_and_decoding_goes_first",
            f"{DRAFTER}::test_step_budget_serves_those_in_front_first",
        ),
        "threads": (f"{ENGINE}/test_pretrained.py::test_threads",),
        "cores": (f"{SERVICES}::test_cores_pin_the_loop_and_not_the_front",),
        "batch_invariant": (f"{ENGINE}/test_pretrained.py::test_batch_invariant",),
    },
    "Target": {
        "port": (ADDRESSES,),
        "metrics_port": (ADDRESSES,),
        "advertise_url": (f"{TARGET_FRONT}::test_where_the_gateway_reaches_it",),
        "served_model_name": (f"{TARGET_FRONT}::test_the_name_in_the_api",),
        "max_waiting": (f"{TARGET_FRONT}::test_admission_is_bounded",),
        "request_timeout_s": (
            f"{REAL}/fronts/test_target_front.py::test_a_request_has_a_deadline",
        ),
        "drain_s": (f"{REAL}/fronts/test_target_process.py::test_drain_s",),
        "drafting": (f"{UNIT}/target/test_star.py::test_drafting_off_sends_nothing",),
        "draft_depth": (f"{STAR}::test_draft_depth",),
        "wait_budget": (f"{STAR}::test_wait_budget",),
        "breaker_misses": (f"{STAR}::test_breaker_misses",),
        "probe_interval_s": (f"{STAR}::test_probe_interval_s",),
    },
    "Draft": {
        "port": (ADDRESSES,),
        "metrics_port": (ADDRESSES,),
        "max_sequences": (f"{ENGINE}/test_loading.py::test_scripted_model",),
        "draft_revision": (
            f"{ENGINE}/test_loading.py::test_draft_of_its_own_has_its_own_revision",
        ),
        "draft": (f"{ENGINE}/test_loading.py::test_all_layers_are_the_target_itself",),
        "draft_candidates": (f"{DRAFTER}::test_candidates_limit_what_is_evaluated",),
        "max_depth": (
            f"{UNIT}/draft/test_step.py::test_depth_is_capped_by_setting_and_by_room",
            f"{UNIT}/draft/test_loop.py::test_the_offer_follows_the_settings",
        ),
        "evict_idle_s": (f"{SESSIONS}::test_evict_idle_s",),
        "seq_idle_s": (f"{SESSIONS}::test_seq_idle_s",),
        "max_sessions": (f"{SESSIONS}::test_max_sessions",),
        "retry_after_ms": (f"{SESSIONS}::test_retry_after_ms",),
    },
    "Gateway": {
        "targets": (f"{REAL}/gateway/test_health.py::test_not_ready_from_the_stop_signal_on",),
        "probe_interval_s": (f"{GATEWAY}::test_probe_interval_s",),
        "connect_timeout_s": (
            f"{GATEWAY}::test_connect_timeout_s_of_a_probe",
            f"{GATEWAY}::test_connect_timeout_s_of_a_request",
        ),
        "target_lost_s": (f"{GATEWAY}::test_target_lost_s",),
        "request_timeout_s": (f"{REAL}/gateway/test_errors.py::test_the_deadline_of_a_request",),
        "drain_s": (f"{REAL}/gateway/test_process.py::test_drain_s",),
        "keepalive_s": (f"{REAL}/gateway/test_answers.py::test_silence_is_filled_with_comments",),
        "max_body_bytes": (f"{REAL}/gateway/test_errors.py::test_a_body_over_the_limit",),
    },
    "starsd up": {
        "targets_count": (f"{UP}::test_targets",),
        "ready_timeout_s": (
            f"{UP}::test_ready_timeout_s",
            f"{REAL}/test_up.py::test_up_that_is_not_ready_in_time_ends",
        ),
    },
}

PASSED_ON = f"{UNIT}/cli/test_main.py::test_up_passes_its_options_and_exit_code"
COMMAND_LINE: dict[str, tuple[str, ...]] = {
    "starsd up --targets": (PASSED_ON, f"{UP}::test_targets"),
    "starsd up --draft": (PASSED_ON, f"{UP}::test_draft"),
    "starsd up --model": (PASSED_ON, f"{UP}::test_model_and_dtype"),
    "starsd up --dtype": (PASSED_ON, f"{UP}::test_model_and_dtype"),
    "starsd up --port": (PASSED_ON, f"{UP}::test_port"),
    "starsd up --redis": (PASSED_ON, f"{UP}::test_redis"),
    "starsd chat --url": (f"{UNIT}/cli/test_main.py::test_chat_asks_the_url",),
    "starsd chat --model": (CHAT,),
    "starsd chat --max-tokens": (CHAT,),
    "starsd chat --temperature": (CHAT,),
    "starsd chat --seed": (CHAT,),
    "starsd check identity --prompts": (f"{CHECK}::test_prompts_and_max_tokens",),
    "starsd check identity --max-tokens": (f"{CHECK}::test_prompts_and_max_tokens",),
    "starsd check identity --model": (f"{CHECK}::test_model_draft_and_dtype",),
    "starsd check identity --draft": (f"{CHECK}::test_model_draft_and_dtype",),
    "starsd check identity --dtype": (f"{CHECK}::test_model_draft_and_dtype",),
    "starsd check identity --normal": (
        f"{CHECK}::test_normal_excuses_what_the_reference_explains",
    ),
    "starsd check identity --quick": (f"{CHECK}::test_quick",),
    "starsd check identity --json": (
        f"{CHECK}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    **{
        f"starsd bench peers --{option}": (f"{PEERS_CLI}::test_options", f"{PEERS}/{proof}")
        for option, proof in {
            "only": "test_run.py::test_only_and_ours_choose_who_is_measured",
            "ours": "test_run.py::test_only_and_ours_choose_who_is_measured",
            "cores": "test_run.py::test_versions_cores_and_load_are_told",
            "draft": "test_ours.py::test_the_star_has_a_core_for_each_of_hub_and_target",
            "model": "test_run.py::test_each_is_measured_at_every_number_of_requests",
            "prompts": "test_run.py::test_prompts_are_short_and_of_many_categories",
            "max-tokens": "test_run.py::test_out_has_every_run_in_turn",
            "repeats": "test_run.py::test_out_has_every_run_in_turn",
            "envs": "test_envs.py::test_made_once_kept_and_made_anew_when_the_recipe_changes",
            "out": "test_run.py::test_out_has_every_run_in_turn",
            "plot": "test_plot.py::test_a_bar_for_each_server_in_a_panel_for_each_number",
        }.items()
    },
    "starsd bench peers --json": (
        f"{PEERS_CLI}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    "starsd bench speed --model": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_weights_and_precision_are_the_same_everywhere",
    ),
    "starsd bench speed --draft": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_draft_depth_and_wait_budget",
    ),
    "starsd bench speed --dtype": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_weights_and_precision_are_the_same_everywhere",
    ),
    "starsd bench speed --quantize": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_weights_and_precision_are_the_same_everywhere",
    ),
    "starsd bench speed --depth": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_draft_depth_and_wait_budget",
    ),
    "starsd bench speed --wait-budget": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_draft_depth_and_wait_budget",
    ),
    "starsd bench speed --invariant": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_where_answers_must_be_identical",
    ),
    "starsd bench speed --prompts": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_prompts_and_repeats_are_interleaved_and_everyone_is_first_in_turn",
    ),
    "starsd bench speed --max-tokens": (f"{BENCH}::test_options", f"{SPEED}::test_what_is_asked"),
    "starsd bench speed --temperature": (f"{BENCH}::test_options", f"{SPEED}::test_what_is_asked"),
    "starsd bench speed --repeats": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_prompts_and_repeats_are_interleaved_and_everyone_is_first_in_turn",
    ),
    "starsd bench speed --json": (
        f"{BENCH}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    "starsd bench speed --out": (
        f"{BENCH}::test_out_has_every_answer",
        f"{BENCH}::test_out_is_tried_before_anything_is_measured",
    ),
    "starsd settings --markdown": (
        f"{UNIT}/cli/test_main.py::test_settings_markdown_is_the_document",
    ),
}


def settings() -> set[tuple[str, str]]:
    """Section and name of every setting, as docs/settings.md lists them."""
    return {
        (title, entry.variable.removeprefix(PREFIX).lower())
        for title, cls in SECTIONS
        for entry in entries(cls)
    }


def options(command: Any, name: str = "starsd") -> Iterator[str]:
    for parameter in command.params:
        yield from (f"{name} {option}" for option in parameter.opts if option.startswith("--"))
    for word, child in getattr(command, "commands", {}).items():
        yield from options(child, f"{name} {word}")


def proofs() -> Iterator[tuple[str, str]]:
    """The word for an option in its tests, and one of them."""
    for section in PROOFS.values():
        yield from ((name, proof) for name, tests in section.items() for proof in tests)
    for line, tests in COMMAND_LINE.items():
        word = line.rpartition("--")[2].replace("-", "_")
        yield from ((word, proof) for proof in tests)


@cache
def functions_of(path: str) -> frozenset[str]:
    """Names of the functions of a test module."""
    body = ast.parse((ROOT / path).read_text()).body
    functions = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(functions)


def test_every_option_has_its_proof() -> None:
    assert settings() == {(title, name) for title, names in PROOFS.items() for name in names}
    assert set(options(get_command(app))) == set(COMMAND_LINE)


@pytest.mark.parametrize(("word", "proof"), sorted(set(proofs())))
def test_the_proof_exists_in_a_module_that_names_the_option(word: str, proof: str) -> None:
    path, _, name = proof.partition("::")
    assert name.startswith("test_")
    assert name in functions_of(path)
    text = (ROOT / path).read_text().lower().replace("-", "_")
    assert re.search(rf"(?<![a-z]){word}(?![a-z])", text), f"{path} does not mention {word}"
