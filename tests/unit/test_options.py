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
from starsd.settings.common import PREFIX

ROOT = Path(__file__).parents[2]
UNIT, REAL = "tests/unit", "tests/integration"
ADDRESSES = f"{REAL}/fronts/test_addresses.py::test_host_and_ports"
BENCH = f"{UNIT}/cli/test_bench.py"
BENCH_DRAFT = f"{UNIT}/bench_draft"
BENCH_ENGINE = f"{UNIT}/bench_engine"
CHAT = f"{UNIT}/cli/test_main.py::test_chat_asks_as_its_options_say"
CHECK = f"{UNIT}/cli/test_check.py"
DRAFTER = f"{UNIT}/drafters/test_lm.py"
DRAFTS_CLI = f"{UNIT}/cli/test_drafts.py"
ENGINE = f"{UNIT}/engine"
ENGINE_CLI = f"{UNIT}/cli/test_engine.py"
FRONT = f"{UNIT}/process/test_front.py"
GATEWAY = f"{REAL}/gateway/test_settings.py"
PEERS = f"{UNIT}/bench_peers"
PEERS_CLI = f"{UNIT}/cli/test_peers.py"
PEERS_RUN = f"{REAL}/test_bench_peers.py"
PREFIXES = f"{UNIT}/target/test_prefix_cache.py"
PROFILE = f"{UNIT}/bench/test_profile.py"
PLANNING_CLI = f"{UNIT}/cli/test_planning.py"
PROFILE_CLI = f"{UNIT}/cli/test_profile.py"
SCALE = f"{UNIT}/bench_scale"
SCALE_CLI = f"{UNIT}/cli/test_scale.py"
RUN_AHEAD = f"{UNIT}/draft/test_run_ahead.py"
FORESIGHT = f"{UNIT}/target/test_foresight.py"
SCHEDULING = f"{UNIT}/draft/test_scheduling.py"
SERVICES = f"{REAL}/test_services.py"
SESSIONS = f"{UNIT}/draft/test_sessions.py"
SPEED = f"{UNIT}/bench/test_speed.py"
STAR = f"{UNIT}/target/test_star_settings.py"
STEP = f"{UNIT}/target/test_step.py"
TARGET_FRONT = f"{UNIT}/target/test_front.py"
TRAIN = f"{UNIT}/training/test_run.py"
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
        "cuda_graphs": (
            f"{ENGINE}/test_grid.py::test_cuda_graphs",
            f"{ENGINE}/test_grid.py::test_each_shape_is_recorded_once",
        ),
        "cache_dir": (f"{ENGINE}/test_checkpoint.py::test_bundled_is_converted_once",),
        "scripted": (f"{ENGINE}/test_loading.py::test_scripted_model",),
        "max_sequences": (f"{ENGINE}/test_kv_memory.py::test_max_sequences_and_max_length",),
        "max_length": (f"{ENGINE}/test_kv_memory.py::test_max_sequences_and_max_length",),
        "kv_memory": (
            f"{ENGINE}/test_kv_memory.py::test_kv_memory",
            f"{UNIT}/target/test_slots.py::test_kv_memory_bounds_who_runs",
            f"{SESSIONS}::test_kv_memory",
        ),
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
        "spin_ms": (
            "tests/unit/target/test_loop.py::test_spin_ms",
            "tests/unit/bus/test_waiting.py::test_goes_on_looking_for_a_while_after_something_came",
        ),
        "batch_invariant": (f"{ENGINE}/test_pretrained.py::test_batch_invariant",),
    },
    "Target": {
        "port": (ADDRESSES,),
        "metrics_port": (ADDRESSES,),
        "advertise_url": (f"{TARGET_FRONT}::test_where_the_gateway_reaches_it",),
        "served_model_name": (f"{TARGET_FRONT}::test_the_name_in_the_api",),
        "served_model_aliases": (f"{TARGET_FRONT}::test_served_model_aliases",),
        "max_waiting": (f"{TARGET_FRONT}::test_admission_is_bounded",),
        "request_timeout_s": (
            f"{REAL}/fronts/test_target_front.py::test_a_request_has_a_deadline",
        ),
        "drain_s": (f"{REAL}/fronts/test_target_process.py::test_drain_s",),
        "drafting": (f"{UNIT}/target/test_jobs.py::test_drafting_off_plans_and_sends_nothing",),
        "draft_depth": (f"{STAR}::test_draft_depth",),
        "depth_control": (f"{STAR}::test_depth_control",),
        "draft_context": ("tests/identity/test_features.py::test_draft_context",),
        "draft_nodes": (f"{STAR}::test_draft_nodes",),
        "run_ahead": (
            f"{FORESIGHT}::test_run_ahead",
            f"{FORESIGHT}::test_it_is_always_verified_if_told_to",
        ),
        "ngram": (f"{UNIT}/target/test_step_ngram.py::test_ngram",),
        "tool_parser": (f"{UNIT}/target/test_tooling.py::test_tool_parser",),
        "prefix_cache": (
            f"{PREFIXES}::test_prefix_cache",
            f"{PREFIXES}::test_the_bound_holds_over_many_requests",
        ),
        "wait_budget": (f"{STAR}::test_wait_budget",),
        "breaker_misses": (f"{STAR}::test_breaker_misses",),
        "probe_interval_s": (f"{STAR}::test_probe_interval_s",),
    },
    "Draft": {
        "port": (ADDRESSES,),
        "metrics_port": (ADDRESSES,),
        "max_sequences": (f"{ENGINE}/test_loading.py::test_scripted_model",),
        "dtype": (
            f"{ENGINE}/eagle/test_loading.py"
            "::test_compiled_where_a_model_would_be_and_in_8_bits_unless_told_otherwise",
        ),
        "draft_revision": (
            f"{ENGINE}/test_loading.py::test_draft_of_its_own_has_its_own_revision",
        ),
        "draft": (f"{ENGINE}/test_loading.py::test_all_layers_are_the_target_itself",),
        "draft_candidates": (f"{DRAFTER}::test_candidates_limit_what_is_evaluated",),
        "draft_confidence": (f"{UNIT}/drafters/test_eagle.py::test_draft_confidence",),
        "trees": (
            f"{DRAFTER}::test_chains_where_no_more_nodes_than_depth_are_asked_or_trees_are_off",
        ),
        "max_depth": (
            f"{UNIT}/draft/test_step.py::test_depth_is_capped_by_setting_and_by_room",
            f"{UNIT}/draft/test_loop.py::test_the_offer_follows_the_settings",
        ),
        "drain_s": (f"{UNIT}/draft/test_front.py::test_drain_s",),
        "run_ahead": (
            f"{RUN_AHEAD}::test_run_ahead",
            f"{RUN_AHEAD}::test_guesses_that_know_less_are_sent_where_they_are_worth_it",
        ),
        "scheduler": (f"{SCHEDULING}::test_scheduler",),
        "weights": (f"{SCHEDULING}::test_weights",),
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
        "prefix_margin": (
            f"{UNIT}/gateway/test_routing.py::test_prefix_margin",
            f"{GATEWAY}::test_prefix_margin",
        ),
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
    "starsd up --quantize": (PASSED_ON, f"{UP}::test_quantize"),
    "starsd up --kv-memory": (PASSED_ON, f"{UP}::test_kv_memory"),
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
    "starsd check identity --quantize": (f"{CHECK}::test_quantize",),
    "starsd check identity --normal": (
        f"{CHECK}::test_normal_excuses_what_the_reference_explains",
    ),
    "starsd check identity --quick": (f"{CHECK}::test_quick",),
    "starsd check identity --json": (
        f"{CHECK}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    **{
        f"starsd bench peers --{option}": (f"{PEERS_CLI}::test_options", proof)
        for option, proof in {
            "only": f"{PEERS_RUN}::test_only_and_ours_choose_who_is_measured",
            "ours": f"{PEERS_RUN}::test_only_and_ours_choose_who_is_measured",
            "cores": f"{PEERS_RUN}::test_versions_cores_and_load_are_told",
            "draft": f"{PEERS}/test_ours.py::test_the_star_has_a_core_for_each_of_hub_and_target",
            "model": f"{PEERS_RUN}::test_each_is_measured_at_every_number_of_requests",
            "prompts": f"{PEERS_RUN}::test_prompts_are_short_and_of_many_categories",
            "max-tokens": f"{PEERS_RUN}::test_out_has_every_run_in_turn",
            "repeats": f"{PEERS_RUN}::test_out_has_every_run_in_turn",
            "envs": f"{PEERS}/test_envs.py::"
            "test_made_once_kept_and_made_anew_when_the_recipe_changes",
            "out": f"{PEERS_RUN}::test_out_has_every_run_in_turn",
            "plot": f"{PEERS}/test_plot.py::test_a_bar_for_each_server_in_a_panel_for_each_number",
        }.items()
    },
    "starsd bench peers --json": (
        f"{PEERS_CLI}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    **{
        f"starsd train-draft --{option}": (f"{TRAIN}::test_command", f"{UNIT}/training/{proof}")
        for option, proof in {
            "model": "test_run.py::test_a_head_learns_and_everything_is_written",
            "kind": "test_run.py::test_layers_of_the_target_are_an_ordinary_model",
            "layers": "test_run.py::test_layers_of_the_target_are_an_ordinary_model",
            "vocabulary": "test_run.py::test_a_head_learns_and_everything_is_written",
            "tokens": "test_dialogues.py::test_collecting_stops_at_the_budget_and_keeps_all",
            "passes": "test_resume.py::test_more_passes_go_on_where_it_was",
            "batch-tokens": "test_run.py::test_a_pass_has_every_token_once_in_bounded_batches",
            "keep-gb": "test_run.py::test_later_passes_need_the_target_only_where_nothing_is_kept",
            "rate": "test_run.py::test_a_head_is_gone_on_from",
            "start": "test_run.py::test_a_head_is_gone_on_from",
            "data": "test_run.py::test_data_of_another_run_is_trained_on_without_sampling",
            "chats": "test_run.py::test_chats_are_answered_first",
            "sampler": "test_vllm.py::test_turn_by_turn",
            "device": "test_run.py::test_device_and_threads",
            "threads": "test_run.py::test_device_and_threads",
            "seed": "test_run.py::test_a_seed_decides",
        }.items()
    },
    **{
        f"starsd bench profile --{option}": (f"{PROFILE_CLI}::test_options", f"{PROFILE}::{proof}")
        for option, proof in {
            "model": "test_a_core_for_each_and_room_for_the_largest_batch",
            "draft": "test_a_core_for_each_and_room_for_the_largest_batch",
            "dtype": "test_a_core_for_each_and_room_for_the_largest_batch",
            "quantize": "test_a_core_for_each_and_room_for_the_largest_batch",
            "batch": "test_a_batch_of_different_short_prompts",
            "sampling": "test_every_batch_with_every_sampling",
            "tokens": "test_looks_are_taken_while_all_decode",
            "temperature": "test_samplings",
            "top-p": "test_samplings",
            "top-k": "test_samplings",
        }.items()
    },
    **{
        f"starsd bench engine --{option}": (
            f"{ENGINE_CLI}::test_options",
            f"{BENCH_ENGINE}/{proof}",
        )
        for option, proof in {
            "precisions": "test_run.py::test_precisions_cores_and_model",
            "cores": "test_run.py::test_precisions_cores_and_model",
            "model": "test_run.py::test_precisions_cores_and_model",
            "only": "test_run.py::test_only_what_is_wanted_is_measured",
            "contexts": "test_contexts.py::test_memory_and_time_by_context",
            "tokens": "test_answers.py::test_an_answer_is_the_models_own",
            "repeats": "test_timing.py::test_cases_take_turns_and_first_times_do_not_count",
        }.items()
    },
    **{
        f"starsd bench draft --{option}": (f"{DRAFTS_CLI}::test_options", f"{BENCH_DRAFT}/{proof}")
        for option, proof in {
            "model": "test_drafts.py::test_drafts_are_loaded_as_the_target_is",
            "drafts": "test_drafts.py::test_each_by_its_name_once",
            "dtype": "test_drafts.py::test_drafts_are_loaded_as_the_target_is",
            "quantize": "test_drafts.py::test_drafts_are_loaded_as_the_target_is",
            "temperatures": "test_run.py::test_every_draft_at_every_temperature",
            "prompts": "test_run.py::test_depth_prompts_and_nodes_are_kept_to",
            "max-tokens": "test_run.py::test_every_draft_at_every_temperature",
            "depth": "test_run.py::test_depth_prompts_and_nodes_are_kept_to",
            "nodes": "test_run.py::test_depth_prompts_and_nodes_are_kept_to",
        }.items()
    },
    "starsd bench draft --json": (
        f"{DRAFTS_CLI}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    "starsd bench draft --out": (
        f"{DRAFTS_CLI}::test_out_has_every_time",
        f"{DRAFTS_CLI}::test_out_is_tried_before_anything_is_measured",
    ),
    **{
        f"starsd bench scale --{option}": (f"{SCALE_CLI}::test_options", f"{SCALE}/{proof}")
        for option, proof in {
            "model": "test_recording.py::test_model_draft_and_precision",
            "draft": "test_recording.py::test_model_draft_and_precision",
            "dtype": "test_recording.py::test_model_draft_and_precision",
            "quantize": "test_recording.py::test_model_draft_and_precision",
            "tiers": "test_run.py::test_tiers",
            "modes": "test_emulated.py::test_modes_and_targets",
            "targets": "test_emulated.py::test_modes_and_targets",
            "full-at": "test_emulated.py::test_full_at",
            "verify-ms": "test_emulated.py::test_verify_ms_stretches_all_steps",
            "quick": "test_emulated.py::test_quick_is_less",
        }.items()
    },
    "starsd bench scale --json": (
        f"{SCALE_CLI}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    "starsd bench scale --out": (
        f"{SCALE_CLI}::test_out_has_result_and_plots",
        f"{SCALE}/test_store.py::test_another_setup_wants_another_folder",
    ),
    **{
        f"starsd bench calibrate --{option}": (
            f"{SCALE_CLI}::test_calibrate_options",
            f"{SCALE}/test_recording.py::{proof}",
        )
        for option, proof in {
            "model": "test_model_draft_and_precision",
            "draft": "test_model_draft_and_precision",
            "dtype": "test_model_draft_and_precision",
            "quantize": "test_model_draft_and_precision",
            "prompts": "test_prompts_and_max_tokens",
            "max-tokens": "test_prompts_and_max_tokens",
        }.items()
    },
    "starsd bench calibrate --json": (f"{SCALE_CLI}::test_calibrate_json_and_out",),
    "starsd bench calibrate --out": (
        f"{SCALE_CLI}::test_calibrate_json_and_out",
        f"{SCALE_CLI}::test_calibrate_tries_its_file_first",
    ),
    **{
        f"starsd plan --{option}": (f"{PLANNING_CLI}::{proof}",)
        for option, proof in {
            "costs": "test_costs_are_those_of_the_file",
            "draft-ms": "test_what_is_typed_in_goes_before_what_was_measured",
            "draft-growth": "test_what_is_typed_in_goes_before_what_was_measured",
            "verify-ms": "test_what_is_typed_in_goes_before_what_was_measured",
            "verify-growth": "test_what_is_typed_in_goes_before_what_was_measured",
            "round-trip-ms": "test_what_is_typed_in_goes_before_what_was_measured",
            "acceptance": "test_acceptance",
            "mode": "test_questions",
            "depths": "test_questions",
            "targets": "test_questions",
            "sequences": "test_questions",
            "hubs": "test_questions",
            "json": "test_json_is_the_last_line_and_the_only_one_on_stdout",
            "plot": "test_plot",
        }.items()
    },
    "starsd bench engine --flips": (f"{ENGINE_CLI}::test_no_flips",),
    "starsd bench engine --json": (
        f"{ENGINE_CLI}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    "starsd bench engine --out": (f"{ENGINE_CLI}::test_out_has_every_time",),
    "starsd bench profile --json": (
        f"{PROFILE_CLI}::test_json_is_the_last_line_and_the_only_one_on_stdout",
    ),
    "starsd bench profile --out": (f"{PROFILE_CLI}::test_out_has_the_result",),
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
    "starsd bench speed --nodes": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_nodes_and_nothing_of_the_targets_own_to_propose",
    ),
    "starsd bench speed --others": (
        f"{BENCH}::test_options",
        f"{SPEED}::test_others_are_plain_in_our_other_precisions",
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
