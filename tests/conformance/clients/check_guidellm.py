"""GuideLLM: a short benchmark, whose report must count every request as a success."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conformance.clients.asked import MODEL, TEXT, URL

REQUESTS, TOKENS = 12, 8
GUIDELLM = Path(sys.executable).parent / "guidellm"


def test_a_short_run(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"prompt": f"{n} {TEXT}", "output_tokens_count": TOKENS}) + "\n"
            for n in range(20)
        )
    )
    report = tmp_path / "report.json"
    options = {
        "backend": f"kind=openai_http,target={URL},model={MODEL}",
        "profile": "kind=concurrent,streams=2",
        "constraint": f"kind=max_requests,count={REQUESTS}",
        "data": f"kind=json_file,path={prompts}",
        "output": f"kind=json,path={report}",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [str(GUIDELLM), "run", *arguments, "--disable-console"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0)
