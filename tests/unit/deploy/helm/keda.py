"""What a ScaledObject may say, as far as the chart uses it: by https://keda.sh/docs/2.17/reference/scaledobject-spec/."""

from typing import Any

Schema = dict[str, Any]


def _strictly(properties: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER_TEXT: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}
_WHOLE_TEXT: Schema = {"type": "string", "pattern": "^[0-9]+$"}
_BOOL_TEXT: Schema = {"enum": ["true", "false"]}

_POLICY = _strictly(
    {
        "type": {"enum": ["Pods", "Percent"]},
        "value": {"type": "integer", "minimum": 1},
        "periodSeconds": {"type": "integer", "minimum": 1, "maximum": 1800},
    },
    "type",
    "value",
    "periodSeconds",
)

_RULES = _strictly(
    {
        "stabilizationWindowSeconds": {"type": "integer", "minimum": 0, "maximum": 3600},
        "selectPolicy": {"enum": ["Max", "Min", "Disabled"]},
        "policies": {"type": "array", "minItems": 1, "items": _POLICY},
    }
)

_PROMETHEUS = _strictly(
    {
        "serverAddress": _TEXT,
        "query": _TEXT,
        "threshold": _NUMBER_TEXT,
        "activationThreshold": _NUMBER_TEXT,
        "ignoreNullValues": _BOOL_TEXT,
        "authModes": _TEXT,
    },
    "serverAddress",
    "query",
    "threshold",
)

_JETSTREAM = _strictly(
    {
        "natsServerMonitoringEndpoint": _TEXT,
        "account": _TEXT,
        "stream": _TEXT,
        "consumer": _TEXT,
        "lagThreshold": _WHOLE_TEXT,
        "activationLagThreshold": _WHOLE_TEXT,
        "useHttps": _BOOL_TEXT,
    },
    "natsServerMonitoringEndpoint",
    "account",
    "stream",
    "consumer",
)


def _trigger(kind: str, metadata: Schema) -> Schema:
    properties: Schema = {
        "type": {"const": kind},
        "name": _TEXT,
        "metricType": {"enum": ["AverageValue", "Value"]},
        "metadata": metadata,
        "authenticationRef": _strictly({"name": _TEXT, "kind": _TEXT}, "name"),
    }
    return _strictly(properties, "type", "metadata")


_SPEC = _strictly(
    {
        "scaleTargetRef": _strictly({"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT}, "name"),
        "pollingInterval": {"type": "integer", "minimum": 1},
        "cooldownPeriod": _COUNT,
        "initialCooldownPeriod": _COUNT,
        "idleReplicaCount": {"const": 0},
        "minReplicaCount": _COUNT,
        "maxReplicaCount": {"type": "integer", "minimum": 1},
        "fallback": _strictly(
            {
                "failureThreshold": {"type": "integer", "minimum": 1},
                "replicas": {"type": "integer", "minimum": 1},
                "behavior": {
                    "enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]
                },
            },
            "failureThreshold",
            "replicas",
        ),
        "advanced": _strictly(
            {
                "horizontalPodAutoscalerConfig": _strictly(
                    {"name": _TEXT, "behavior": _strictly({"scaleUp": _RULES, "scaleDown": _RULES})}
                )
            }
        ),
        "triggers": {
            "type": "array",
            "minItems": 1,
            "items": {"oneOf": [_trigger("prometheus", _PROMETHEUS), _trigger("nats-jetstream", _JETSTREAM)]},
        },
    },
    "scaleTargetRef",
    "triggers",
)

SCALED_OBJECT = _strictly(
    {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {"type": "object"},
        "spec": _SPEC,
    },
    "apiVersion",
    "kind",
    "metadata",
    "spec",
)
