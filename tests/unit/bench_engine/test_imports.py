from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "tokenizers")))
import starsd.bench.engine.run
"""


def test_the_command_line_needs_no_engine() -> None:
    """None in sys.modules fails every import of the name."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
