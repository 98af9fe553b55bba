"""What every pod of the chart must and must not have."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.identities import Wanted, make_secrets
from broker.identity import inbox_prefix_of
from broker.permissions import inbox_prefix
from stages.sections import all_sections, load_stage_settings
from stages.settings import load_settings, settings_of, variable
from stages.topology_settings import TopologyLimits
from tests.unit.deploy.helm import chart

DEPLOYMENTS = {f"hr-headrace-{stage}": stage for stage in chart.CPU_STAGES} | {
    "hr-headrace-inference-small": "inference",
    "hr-headrace-inference-big": "inference",
}
KNOWN = {variable(cls, name) for cls in all_sections() for name in settings_of(cls)}


@pytest.fixture
def pods() -> dict[str, chart.Object]:
    """The pods of the largest set of values."""
    return chart.pods(chart.rendered("everything"))


@pytest.mark.parametrize("name", chart.SETS)
def test_every_variable_is_a_setting(name: str) -> None:
    """Whatever starts with HEADRACE_ is known to the program: a misspelt one would be without effect."""
    for pod in chart.pods(chart.rendered(name)).values():
        ours = {each for each in chart.variables(pod) if each.startswith("HEADRACE_")}
        assert ours <= KNOWN


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of them."""
    folder = tmp_path_factory.mktemp("identities")
    make_secrets(folder, Wanted())
    return folder


@pytest.mark.parametrize("name", chart.SETS)
def test_every_stage_takes_its_settings(name: str, identities: Path) -> None:
    """The values, too: each process reads its environment without an error."""
    for pod in chart.pods(chart.rendered(name)).values():
        environ = _environ(pod, identities)
        match chart.container(pod)["args"]:
            case ["stage", stage]:
                load_stage_settings(stage, {}, environ)
            case ["init"]:
                load_settings(TopologyLimits, environ)
            case other:
                pytest.fail(f"no command of headrace: {other}")


def test_settings_reach_the_stage_as_they_were_meant(pods: dict[str, chart.Object], identities: Path) -> None:
    """Large numbers, fractions, lists and maps keep their value on the way through Helm."""
    edge = _settings(pods["hr-headrace-edge"], "edge", identities)
    assert (edge.max_body_bytes, edge.keep_alive_s) == (1073741824, 2.5)
    assert list(edge.cors_origins) == ["https://a", "https://b"]
    assert edge.keys_file == "/keys/keys.toml"
    assert _settings(pods["hr-headrace-schedule"], "schedule", identities).tenant_weights == {"a": 2, "b": 0.5}


@pytest.mark.parametrize("name", chart.SETS)
def test_kubernetes_waits_longer_than_a_drain(name: str) -> None:
    """A soft stop may take all of its grace time; only then does SIGKILL come."""
    for pod in chart.pods(chart.rendered(name)).values():
        if chart.container(pod)["args"][0] == "stage":
            grace_s = float(chart.variables(pod)["HEADRACE_GRACE_S"])
            assert pod["spec"]["terminationGracePeriodSeconds"] >= grace_s + 10


@pytest.mark.parametrize("name", chart.SETS)
def test_nobody_has_more_rights_than_needed(name: str) -> None:
    """Not root, nothing to write but what is mounted, no capability, no token, no variables of services."""
    for pod in chart.pods(chart.rendered(name)).values():
        spec, one = pod["spec"], chart.container(pod)
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize("name", chart.SETS)
def test_every_mount_has_a_volume(name: str) -> None:
    """And every volume a mount; /tmp is always one that can be written."""
    for pod in chart.pods(chart.rendered(name)).values():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts = {mount["mountPath"]: mount for mount in chart.container(pod)["volumeMounts"]}
        assert {mount["name"] for mount in mounts.values()} == set(volumes)
        assert volumes[mounts["/tmp"]["name"]] == {"name": "tmp", "emptyDir": {}}


def test_probes_ask_what_the_process_answers(pods: dict[str, chart.Object]) -> None:
    """/live decides on a restart, /ready on work; who loads a model has startSeconds before either counts."""
    for name in DEPLOYMENTS:
        one = chart.container(pods[name])
        assert one["livenessProbe"]["httpGet"] == {"path": "/live", "port": "health"}
        assert one["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "health"}
        ports = {port["name"]: port["containerPort"] for port in one["ports"]}
        assert str(ports["health"]) == chart.variables(pods[name])["HEADRACE_HEALTH_PORT"]
        assert chart.variables(pods[name])["HEADRACE_HEALTH_HOST"] == "0.0.0.0"
    for name, seconds in (("small", 1800), ("big", 3605)):
        startup = chart.container(pods[f"hr-headrace-inference-{name}"])["startupProbe"]
        assert startup["httpGet"]["path"] == "/ready"
        assert seconds <= startup["failureThreshold"] * startup["periodSeconds"] < seconds + 10


def test_each_stage_has_the_identity_of_its_own_role(pods: dict[str, chart.Object]) -> None:
    """One secret a role, and no pod sees another's; only init is the operator."""
    roles = {**DEPLOYMENTS, "hr-headrace-init": "operator"}
    assert set(pods) == set(roles)
    for name, role in roles.items():
        secrets = [each["secret"] for each in pods[name]["spec"]["volumes"] if each["name"] == "identity"]
        assert [each["secretName"] for each in secrets] == [f"headrace-{role}"]
        files = {item["path"] for item in secrets[0]["items"]}
        assert files == {f"{role}/{file}" for file in ("nkey.seed", "cert.pem", "key.pem", "ca.pem")}
        found = Path(chart.variables(pods[name])["HEADRACE_NATS_IDENTITY"])
        assert found == Path("/identity") / role
        assert inbox_prefix_of(found) == inbox_prefix(role), "the folder's name says which role it is"


def test_a_worker_gets_its_gpus_and_its_model(pods: dict[str, chart.Object]) -> None:
    """As many GPUs as it was given, all used as one engine, the model where it lies, the token by reference."""
    small, big = (pods[f"hr-headrace-inference-{name}"] for name in ("small", "big"))
    assert chart.container(small)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert chart.container(big)["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert json.loads(chart.variables(small)["HEADRACE_INFERENCE_ENGINE_OPTIONS"]) == {"max_model_len": 4096}
    assert json.loads(chart.variables(big)["HEADRACE_INFERENCE_ENGINE_OPTIONS"]) == {"tensor_parallel_size": 4}
    assert chart.variables(small)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf-token", "key": "token"}}
    assert "HF_TOKEN" not in chart.variables(big)
    mounted = {mount["mountPath"] for mount in chart.container(big)["volumeMounts"]}
    assert {"/models", "/dev/shm"} <= mounted
    assert big["spec"]["nodeSelector"] == {"gpu": "h200"}


def test_a_worker_without_gpu_asks_for_none() -> None:
    """The CPU build runs on any node."""
    pod = chart.pods(chart.rendered("bare"))["hr-headrace-inference-cpu"]
    assert "nvidia.com/gpu" not in str(chart.container(pod)["resources"])


def test_an_edge_with_a_certificate_serves_it(pods: dict[str, chart.Object]) -> None:
    """Keys and certificate come as whole folders, which follow a change of their secrets."""
    mounts = {mount["mountPath"]: mount for mount in chart.container(pods["hr-headrace-edge"])["volumeMounts"]}
    assert {"/keys", "/tls"} <= set(mounts)
    assert not any("subPath" in mount for mount in mounts.values())


def test_streams_are_made_before_anything_waits_for_them() -> None:
    """A hook that comes after would never run under `helm install --wait`: pods are ready when there are streams."""
    (job,) = chart.of_kind(chart.rendered("defaults"), "Job").values()
    hooks = set(job["metadata"]["annotations"]["helm.sh/hook"].split(","))
    assert hooks == {"pre-install", "pre-upgrade"}
    settings = load_settings(TopologyLimits, chart.variables(job["spec"]["template"]))
    assert (settings.replicas, settings.partitions) == (3, 4)


def _settings(pod: chart.Object, stage: str, identities: Path) -> Any:
    return load_stage_settings(stage, {}, _environ(pod, identities)).stage


def _environ(pod: chart.Object, identities: Path) -> dict[str, str]:
    """As the process sees it, but with the identities of this machine."""
    found = {key: value for key, value in chart.variables(pod).items() if isinstance(value, str)}
    return {key: value.replace("/identity/", f"{identities}/") for key, value in found.items()}
