"""Options of the load test beside Locust's own, each with an environment variable."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from tests.load.prompts import DEFAULT

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser


def add_options(parser: LocustArgumentParser) -> None:
    add = parser.add_argument
    add("--model", env_var="LOAD_MODEL", default="", help="default: the first of /v1/models")
    add("--max-tokens", env_var="LOAD_MAX_TOKENS", type=int, default=64, help="of an answer")
    add("--temperature", env_var="LOAD_TEMPERATURE", type=float, default=0.0, help="0 is greedy")
    add(
        "--prompts",
        env_var="LOAD_PROMPTS",
        metavar="FILE",
        default=str(DEFAULT),
        include_in_web_ui=False,
        help='JSONL, {"prompt": TEXT} or {"messages": [...]} a line; default: a dozen questions',
    )
    add(
        "--stream-share",
        env_var="LOAD_STREAM_SHARE",
        type=share,
        default=0.75,
        include_in_web_ui=False,
        help="share of users that stream, 0 to 1",
    )
    add(
        "--repeat-share",
        env_var="LOAD_REPEAT_SHARE",
        type=share,
        default=0.0,
        help="share of questions asked twice with one seed, where another text is a failure; "
        "for servers whose results don't depend on batch neighbours",
    )
    add(
        "--timeout",
        env_var="LOAD_TIMEOUT",
        type=float,
        default=60.0,
        include_in_web_ui=False,
        help="longest silence of the server in seconds",
    )
    add(
        "--api-key",
        env_var="LOAD_API_KEY",
        default="",
        is_secret=True,
        help="sent as a bearer token",
    )


def share(text: str) -> float:
    """Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value
