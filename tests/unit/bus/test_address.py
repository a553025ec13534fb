from __future__ import annotations

import ssl

import pytest

from starsd.bus.address import Address, parse_address
from starsd.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address()),
        ("redis://h:1/2", Address(host="h", port=1, database=2)),
        ("redis://:p%40@h", Address(host="h", password="p@")),
        ("redis://u:p@h", Address(host="h", username="u", password="p")),
        ("unix:///tmp/r.sock", Address(path="/tmp/r.sock")),
        (
            "unix://u:p@/tmp/r.sock?db=3",
            Address(path="/tmp/r.sock", username="u", password="p", database=3),
        ),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse_address(url) == address


def test_tls_verifies_unless_told_not_to() -> None:
    strict = parse_address("rediss://h").tls
    lax = parse_address("rediss://h?ssl_cert_reqs=none").tls
    any_name = parse_address("rediss://h?ssl_check_hostname=false").tls
    assert strict is not None
    assert lax is not None
    assert any_name is not None
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_NONE, False)
    assert (any_name.verify_mode, any_name.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://h", "redis_url"),
        ("redis://h:port", "redis_url"),
        ("redis://h?socket_timeot=1", "socket_timeot"),
        ("redis://h?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("rediss://h?ssl_ca_certs=/nowhere.pem", "/nowhere.pem"),
    ],
)
def test_what_cannot_work_is_named(url: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_address(url)


def test_logs_show_no_password() -> None:
    assert str(parse_address("redis://u:secret@h:1")) == "redis://h:1"
    assert "secret" not in str(parse_address("unix://u:secret@/tmp/r.sock"))


def test_greeting() -> None:
    assert Address().greeting == [("PING",)]
    assert Address(password="p").greeting == [("AUTH", "p"), ("PING",)]
