"""A peer for tests, run by path: the OpenAI chat API saying ``tokens`` words whatever is asked, a
token per ``pace_s``, and at ``GET /peak`` the most requests it had at once."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    open = peak = 0
    pace_s = 0.0

    def do_GET(self) -> None:
        self._reply({"peak": Handler.peak})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = len(body["messages"][0]["content"].split())
        if body["messages"][0]["content"] == "break":
            self.send_error(500, "broken as asked")
            return
        if body["messages"][0]["content"] == "mumble":
            self._reply({"choices": []})
            return
        with Handler.lock:
            Handler.open += 1
            Handler.peak = max(Handler.peak, Handler.open)
        time.sleep(self.pace_s * body["max_tokens"])
        with Handler.lock:
            Handler.open -= 1
        usage = {"prompt_tokens": words, "completion_tokens": body["max_tokens"]}
        text = " ".join(["word"] * body["max_tokens"])
        message = {"role": "assistant", "content": text}
        self._reply({"choices": [{"message": message}], "usage": usage})

    def _reply(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    port, Handler.pace_s = int(sys.argv[1]), float(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
