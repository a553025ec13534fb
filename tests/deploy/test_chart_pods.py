"""Every pod: the restricted Pod Security Standard, probes, shutdown, models and GPUs."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from starsd import __version__
from starsd.service import Readiness, metrics_app
from starsd.settings.gateway import GatewaySettings
from starsd.settings.target import TargetSettings
from tests.deploy.cluster import Workload, of_kind, services, workload, workloads
from tests.deploy.helm import Helm, Manifest
from tests.deploy.render import ROLES

ALLOWED_VOLUMES = {"name", "emptyDir", "persistentVolumeClaim"}
"""Of those that the restricted standard allows, the ones the chart uses."""
STOP_S = 30
"""What a service may need after its drain: connections, then the step loop with SIGKILL last."""


def test_pods_are_restricted(objects: list[Manifest]) -> None:
    for one in workloads(objects):
        context = one.pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == context["fsGroup"] == 10001
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert one.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & one.pod.keys()
        assert not [port for port in one.container["ports"] if "hostPort" in port]
        assert all(volume.keys() <= ALLOWED_VOLUMES for volume in one.pod["volumes"])


def test_pods_have_no_token(objects: list[Manifest]) -> None:
    [account] = of_kind(objects, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    for one in workloads(objects):
        assert one.pod["automountServiceAccountToken"] is False
        assert one.pod["serviceAccountName"] == account["metadata"]["name"]


def test_pods_get_no_service_links(objects: list[Manifest]) -> None:
    """``STARSD_GATEWAY_PORT=tcp://...`` would end every service at start: nobody knows it."""
    assert "STARSD_GATEWAY_PORT" not in {
        f"STARSD_{field.upper()}" for model in ROLES.values() for field in model.model_fields
    }
    assert all(one.pod["enableServiceLinks"] is False for one in workloads(objects))


def test_images_run_their_own_entrypoint(objects: list[Manifest]) -> None:
    for one in services(objects):
        assert not {"command", "args"} & one.container.keys()


def test_image_names(helm: Helm, trial: list[Manifest]) -> None:
    for one in services(trial):
        assert one.container["image"] == f"starsd-{one.role}:{__version__}"
    moved = helm.render("--set", "image.registry=r.example/x", "--set-string", "image.tag=7")
    for one in services(moved):
        assert one.container["image"] == f"r.example/x/starsd-{one.role}:7"


@pytest.fixture(scope="session")
def health_paths() -> set[str]:
    """What the metrics port of every service answers."""
    app = metrics_app(lambda: Readiness(ready=True), lambda: b"")
    assert isinstance(app, Starlette)
    return {route.path for route in app.routes if isinstance(route, Route)}


def test_probes(objects: list[Manifest], health_paths: set[str]) -> None:
    for one in services(objects):
        probes = {
            kind: one.container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")
        }
        paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
        assert paths.pop("startup") == (
            "/health/live" if one.role == "gateway" else "/health/ready"
        ), "only models take long, and a gateway is not ready without a target"
        assert paths == {"liveness": "/health/live", "readiness": "/health/ready"}
        assert set(paths.values()) <= health_paths
        for probe in probes.values():
            assert one.ports[probe["httpGet"]["port"]] == int(one.env["STARSD_METRICS_PORT"])


@pytest.mark.parametrize(("seconds", "failures"), [(600, 120), (33, 7), (1, 1)])
def test_a_model_has_startup_seconds_to_load(helm: Helm, seconds: int, failures: int) -> None:
    pool = f'[{{"name":"x","model":"m","resources":{{}},"startupS":{seconds}}}]'
    objects = helm.render("--set-json", f"targets={pool}")
    target = workload(objects, "target")
    startup = target.container["startupProbe"]
    assert (startup["periodSeconds"], startup["failureThreshold"]) == (5, failures)
    assert target.spec["progressDeadlineSeconds"] > seconds


def test_grace_covers_pre_stop_and_drain(objects: list[Manifest]) -> None:
    for one in services(objects):
        sleep = one.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        default = TargetSettings.model_fields["drain_s"].default
        drain = int(one.env.get("STARSD_DRAIN_S", default))
        grace = one.pod["terminationGracePeriodSeconds"]
        assert grace == sleep.get("seconds", 0) + drain + STOP_S
        assert bool(sleep) == (one.role == "gateway"), "only the gateway is behind a Service"


def test_the_chart_knows_the_default_drain(helm: Helm) -> None:
    defaults = {m.model_fields["drain_s"].default for m in (TargetSettings, GatewaySettings)}
    assert defaults == {5}
    objects = helm.render("--set-json", 'targets=[{"name":"x","model":"m","resources":{}}]')
    assert workload(objects, "target").pod["terminationGracePeriodSeconds"] == 5 + STOP_S


def test_no_pre_stop_without_seconds(helm: Helm) -> None:
    gateway = workload(helm.render("--set", "gateway.preStopS=0"), "gateway")
    assert "lifecycle" not in gateway.container


def test_pods_of_a_workload_are_spread_over_nodes(objects: list[Manifest]) -> None:
    for one in services(objects):
        [spread] = one.pod["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert spread["labelSelector"] == one.spec["selector"]


def test_models_are_kept_in_the_volume(objects: list[Manifest]) -> None:
    for one in services(objects):
        mounts = {m["mountPath"]: m["name"] for m in one.container["volumeMounts"]}
        assert mounts["/tmp"] == "tmp"
        assert set(mounts.values()) == {volume["name"] for volume in one.pod["volumes"]}
        for variable in ("STARSD_CACHE_DIR", "HF_HOME") if one.role != "gateway" else ():
            folder = PurePosixPath(one.env[variable])
            assert any(folder.is_relative_to(path) for path in mounts if mounts[path] == "models")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"emptyDir": {"sizeLimit": "4Gi"}}),
        (("cache.claim=models",), {"persistentVolumeClaim": {"claimName": "models"}}),
        (("cache.create=true",), {"persistentVolumeClaim": {"claimName": "starsd-cache"}}),
    ],
)
def test_cache_volumes(helm: Helm, options: tuple[str, ...], expected: object) -> None:
    objects = helm.render(*(part for option in options for part in ("--set", option)))
    for role in ("target", "draft"):
        [volume] = [v for v in workload(objects, role).pod["volumes"] if v["name"] == "models"]
        assert {k: v for k, v in volume.items() if k != "name"} == expected
    claims = [claim["metadata"]["name"] for claim in of_kind(objects, "PersistentVolumeClaim")]
    assert claims == ["starsd-cache"] * ("cache.create=true" in options)


def test_a_gpu_brings_its_device_and_makes_room(helm: Helm) -> None:
    pools = (
        '[{"name":"one","model":"m","resources":{"limits":{"memory":"1Gi"}},"gpus":1},'
        '{"name":"mig","model":"m","resources":{},"gpus":1,"settings":{"device":"cuda:0"}},'
        '{"name":"none","model":"m","resources":{}}]'
    )
    objects = helm.render("--set-json", f"targets={pools}")
    one, mig, none = (workload(objects, "target", pool) for pool in ("one", "mig", "none"))
    assert one.container["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": 1}
    assert [w.env.get("STARSD_DEVICE") for w in (one, mig, none)] == ["cuda", "cuda:0", None]
    assert _surge(one) == (0, 1)
    assert _surge(none) == (1, 0)


def _surge(one: Workload) -> tuple[int, int]:
    rolling = one.spec["strategy"]["rollingUpdate"]
    return rolling["maxSurge"], rolling["maxUnavailable"]


def test_the_gpu_example_runs_on_gpus(helm: Helm, objects: list[Manifest]) -> None:
    for one in services(objects):
        gpus = one.container["resources"].get("limits", {}).get("nvidia.com/gpu", 0)
        assert (one.env.get("STARSD_DEVICE") == "cuda") == (gpus == 1)


def test_tokens_come_from_secrets(helm: Helm) -> None:
    objects = helm.render("--set", "huggingFace.tokenSecret.name=hf")
    for role in ("target", "draft"):
        [token] = [e for e in workload(objects, role).entries if e["name"] == "HF_TOKEN"]
        assert token["valueFrom"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert "HF_TOKEN" not in workload(objects, "gateway").env
