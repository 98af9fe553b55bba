"""The Helm chart, rendered: by the helm in PATH, or by Helm's own library from the package registry."""

import importlib
import importlib.util
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[4] / "deploy" / "helm"
CHART = FOLDER / "headrace"
RELEASE, NAMESPACE = "hr", "headrace"

NO_HELM = "neither helm in PATH nor the package helm-python-sdk is there to render the chart"
CPU_STAGES = ("edge", "preprocess", "schedule", "postprocess")

Object = dict[str, Any]

MODELS: list[Object] = [
    {
        "name": "small",
        "model": "org/Small-1.5B",
        "engineOptions": {"max_model_len": 4096},
        "hfTokenSecret": {"name": "hf-token", "key": "token"},
    },
    {
        "name": "big",
        "model": "/models/big",
        "servedName": "org/Big 70B",
        "gpus": 4,
        "startSeconds": 3605,
        "graceSeconds": 120,
        "nodeSelector": {"gpu": "h200"},
        "modelVolume": {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        "autoscaling": {"min": 2, "max": 3, "idle": 0, "busyShare": 0.5},
    },
]

EVERYTHING: Object = {
    "inference": {"models": MODELS},
    "edge": {
        "settings": {"max_body_bytes": 1073741824, "keep_alive_s": 2.5, "cors_origins": ["https://a", "https://b"]},
        "keys": {"secretName": "api-keys"},
        "tls": {"secretName": "edge-tls"},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "ingress": {"enabled": True, "host": "llm.example.com", "className": "nginx", "tlsSecretName": "ingress-tls"},
        "podAnnotations": {"a": "b"},
    },
    "schedule": {"settings": {"tenant_weights": {"a": 2, "b": 0.5}}, "priorityClassName": "high"},
    "preprocess": {"affinity": {"nodeAffinity": {}}, "tolerations": [{"key": "cpu", "operator": "Exists"}]},
    "imagePullSecrets": [{"name": "pull"}],
    "otlp": {"endpoint": "http://collector.monitoring:4318"},
    "extraEnv": [{"name": "OTEL_TRACES_SAMPLER", "value": "always_on"}],
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "autoscaling": {
        "enabled": True,
        "prometheus": {"matchers": 'namespace="headrace"', "authentication": {"name": "prometheus", "modes": "bearer"}},
    },
}

BARE: Object = {
    "nats": {"url": "nats://nats:4222", "identity": {"enabled": False}},
    "serviceAccount": {"create": False, "name": "default"},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "topologySpread": {"enabled": False},
    "init": {"enabled": False},
    "edge": {"enabled": False},
    "inference": {"models": [{"name": "cpu", "model": "/models/cpu", "gpus": 0, "resources": {"limits": {}}}]},
}

SCALED: Object = {"autoscaling": {"enabled": True}, "inference": {"models": MODELS}}

SETS: dict[str, Object] = {"defaults": {}, "everything": EVERYTHING, "bare": BARE, "scaled": SCALED}


class ChartError(Exception):
    """Helm refused the values, or could not render the chart."""


def can_render() -> bool:
    """Whether Helm is there in any form."""
    return shutil.which("helm") is not None or importlib.util.find_spec("helm_python") is not None


@cache
def rendered(name: str) -> list[Object]:
    """The objects of one of SETS. Not to be changed."""
    return render(SETS[name])


def render(values: Object, release: str = RELEASE) -> list[Object]:
    """The objects of the chart with these values over its own. Raises `ChartError`."""
    text = _by_program(values, release) if shutil.which("helm") else _by_library(values, release)
    return [found for found in yaml.safe_load_all(text) if found]


def _by_program(values: Object, release: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)  # which is YAML, too
        file.flush()
        command = ["helm", "template", release, str(CHART), "--namespace", NAMESPACE, "--values", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def _by_library(values: Object, release: str) -> str:
    helm: Any = importlib.import_module("helm_python")
    try:
        with helm.Chart.load(CHART) as chart:
            chart.validate_schema(values)
            files = chart.render(values, name=release, namespace=NAMESPACE)
    except helm.HelmError as error:
        raise ChartError(str(error)) from error
    return "\n---\n".join(text for name, text in files.items() if name.endswith(".yaml"))


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """By name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pods(objects: list[Object]) -> dict[str, Object]:
    """The pod template of every Deployment and Job, by the name of that."""
    workloads = [each for each in objects if each["kind"] in ("Deployment", "Job")]
    return {each["metadata"]["name"]: each["spec"]["template"] for each in workloads}


def container(pod: Object) -> Object:
    """The only container of a pod."""
    (found,) = pod["spec"]["containers"]
    return found


def variables(pod: Object) -> dict[str, Any]:
    """Name → value of its environment, or where the value comes from."""
    entries = container(pod)["env"]
    assert len({entry["name"] for entry in entries}) == len(entries), "a variable is given twice"
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def picks(selector: Object, pod: Object) -> bool:
    """Whether the `matchLabels` of a selector pick a pod."""
    return selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
