"""Writes helm/starling/values.schema.json from values.yaml and the settings models: `make chart-schema`.

The schema refuses unknown names at the chart's own levels and under each `settings`. The API server checks objects of Kubernetes.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic_settings import BaseSettings

from starling_api.settings import ApiSettings
from starling_audience.settings import AudienceSettings
from starling_broadcaster.settings import BroadcasterSettings
from starling_common.settings import SaslMechanism, SecurityProtocol
from starling_delivery.settings import EmailSettings, FeedSettings
from starling_delivery.settings import Settings as DeliverySettings
from starling_ingest.settings import Settings as IngestSettings
from starling_messenger.settings import Settings as MessengerSettings
from starling_normalizer.settings import Settings as NormalizerSettings
from starling_projector.settings import ProjectorSettings
from starling_scaler.settings import ScalerSettings
from starling_segmenter.settings import Settings as SegmenterSettings
from starling_spark.jobs.audience_report.settings import AudienceReportSettings
from starling_spark.jobs.backfill.settings import BackfillSettings
from starling_spark.jobs.campaign_report.settings import CampaignReportSettings
from starling_spark.jobs.exports.settings import ExportSettings
from starling_spark.jobs.imports.settings import ImportSettings
from starling_spark.jobs.profiles.settings import ProfilesSettings
from starling_spark.jobs.sql_traits.settings import SqlTraitsSettings
from starling_spark.jobs.views.settings import ViewsSettings
from starling_spark.lakehouse.settings import LakeSettings
from starling_tracker.settings import Settings as TrackerSettings

CHART: Final = Path(__file__).parent.parent / "helm/starling"
SCHEMA: Final = CHART / "values.schema.json"

MODELS: Final[Mapping[str, type[BaseSettings]]] = {
    "ingest": IngestSettings,
    "normalizer": NormalizerSettings,
    "segmenter": SegmenterSettings,
    "projector": ProjectorSettings,
    "api": ApiSettings,
    "delivery": DeliverySettings,
    "feeds": FeedSettings,
    "messenger": MessengerSettings,
    "broadcaster": BroadcasterSettings,
    "audience": AudienceSettings,
    "email": EmailSettings,
    "tracker": TrackerSettings,
    "scaler": ScalerSettings,
    "profiles": ProfilesSettings,
    "lake": LakeSettings,
    "views": ViewsSettings,
    "lakeUpkeep": LakeSettings,
    "exports": ExportSettings,
    "audienceReport": AudienceReportSettings,
    "campaignReport": CampaignReportSettings,
    "backfill": BackfillSettings,
    "imports": ImportSettings,
    "sqlTraits": SqlTraitsSettings,
}
"""Block of values.yaml -> the settings of its process."""

_OWN: Final = (
    "STARLING_KAFKA__", "STARLING_REGISTRY__", "STARLING_CASSANDRA__", "STARLING_HTTP__PORT", "STARLING_INSTANCE_ID",
    "STARLING_CLOCK", "STARLING_SECRETS__", "STARLING_LINKS__", "STARLING_EMAIL__TRACKER_URL", "STARLING_PUBLIC_URL",
    "STARLING_WRITE_KEYS",
    "STARLING_TOKENS", "STARLING_PROFILE_PARTITIONS", "STARLING_HISTORY_DAYS", "STARLING_STATE_DIR",
    "STARLING_BACKFILL_", "STARLING_IMPORTS_", "STARLING_SQL_TRAITS_", "STARLING_JOB_TEMPLATES",
    "STARLING_SPARK_MASTER", "STARLING_SPARK_DRIVER_HOST", "STARLING_SPARK_PROPERTIES",
    "STARLING_SPARK_DRIVER_MEMORY", "STARLING_SPARK_JARS",
    "STARLING_CHECKPOINT_DIR", "STARLING_LAKE_WAREHOUSE", "STARLING_LAKE_CATALOG", "STARLING_FAILPOINT",
    "STARLING_NAMESPACE", "STARLING_LEASE_NAME", "STARLING_DRY_RUN", "STARLING_KUBECONFIG",
    *(f"STARLING_{stage}__{name}" for stage in ("NORMALIZER", "SEGMENTER") for name in ("STATEFUL_SET", "MIN_REPLICAS")),
    *(f"STARLING_{stage}__MAX_REPLICAS" for stage in ("NORMALIZER", "SEGMENTER")),
)  # fmt: skip
"""Prefixes of the variables that the chart sets from other values, and of those for tests."""
_STARTED: Final = {"backfill": "STARLING_BACKFILL_", "imports": "STARLING_IMPORTS_", "sqlTraits": "STARLING_SQL_TRAITS_"}
"""Block of a job that the API starts -> one of these prefixes, whose variables the job itself may have."""
_IMPORTS: Final = tuple(f"STARLING_IMPORTS_{name}" for name in ("INGEST_URL", "API_URL", "ROOTS", "WRITE_KEYS", "API_TOKENS"))
"""Those of the imports that the chart or a secret sets."""

_COUNT: Final = {"type": "integer", "minimum": 0}
_POSITIVE: Final = {"type": "integer", "minimum": 1}
_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECT: Final = {"type": "object"}
_OBJECTS: Final = {"type": "array", "items": _OBJECT}
_STRINGS: Final = {"type": "array", "items": {"type": "string"}}
_QUANTITY: Final = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([EPTGMk]i?|m)?$"}
_HEAP: Final = {"type": "string", "pattern": "^[1-9][0-9]*[mg]$"}
_DURATION: Final = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
_INT_OR_PERCENT: Final = {"type": ["integer", "string", "null"], "minimum": 0, "pattern": "^[0-9]+%$"}

_BY_NAME: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(
        ("commonLabels", "commonAnnotations", "labels", "annotations", "podAnnotations", "podLabels", "alertLabels"), _TEXTS
    ),
    **dict.fromkeys(("nodeSelector", "catalog", "properties"), _TEXTS),
    **dict.fromkeys(
        (
            "podSecurityContext",
            "containerSecurityContext",
            "securityContext",
            "resources",
            "strategy",
            "updateStrategy",
            "affinity",
            "startupProbe",
            "livenessProbe",
            "readinessProbe",
            "behavior",
            "authenticationRef",
            "timeouts",
        ),
        _OBJECT,
    ),
    **dict.fromkeys(
        (
            "pullSecrets",
            "relabelings",
            "metricRelabelings",
            "extraEnv",
            "envFrom",
            "tolerations",
            "topologySpreadConstraints",
            "initContainers",
            "extraContainers",
            "extraVolumes",
            "extraVolumeMounts",
            "triggers",
            "tls",
            "parentRefs",
            "matches",
            "filters",
            "ingestFrom",
            "apiFrom",
            "trackerFrom",
            "metricsFrom",
            "dnsTo",
            "kafkaTo",
            "schemaRegistryTo",
            "cassandraTo",
            "tracesTo",
            "kubernetesApiTo",
        ),
        _OBJECTS,
    ),
    **dict.fromkeys(
        (
            "accessModes",
            "hostnames",
            "loadBalancerSourceRanges",
            "disabled",
            "webhooksExceptIPv4",
            "jars",
            "icebergJars",
            "names",
        ),
        _STRINGS,
    ),
    **dict.fromkeys(
        (
            "replicas",
            "backoffLimit",
            "fromRecords",
            "terminationGracePeriodSeconds",
            "preStopSeconds",
            "activeDeadlineSeconds",
            "ttlSecondsAfterFinished",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
            "pollingIntervalSeconds",
            "cooldownSeconds",
        ),
        _COUNT,
    ),
    **dict.fromkeys(("interval", "scrapeTimeout"), _DURATION),
    **dict.fromkeys(("minAvailable", "maxUnavailable"), _INT_OR_PERCENT),
    **dict.fromkeys(("size", "memory", "cpu"), _QUANTITY),
    **dict.fromkeys(("minReplicas", "maxReplicas", "lagPerReplica"), _POSITIVE),
    "port": _PORT,
    "nodePort": {"type": ["integer", "null"], "minimum": 1, "maximum": 65535},
    "kubernetesApiPorts": {"type": "array", "items": _PORT, "minItems": 1},
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "brokers": {"type": "string", "pattern": "^([^:, ]+:[0-9]+( *, *[^:, ]+:[0-9]+)*)?$"},
    "url": {"type": "string", "pattern": "^(https?://[^ ]+)?$"},
    "keyspace": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,47}$"},
    "replicationFactor": {"type": "integer", "minimum": 1, "maximum": 7},
    "profilePartitions": {"type": "integer", "minimum": 1, "maximum": 10000},
    "endpoint": {"type": "string", "pattern": "^(https?://[^ ]+)?$"},
    "ratio": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "historyDays": {"type": "integer", "minimum": 0, "maximum": 1095},
    "protocol": {"enum": [one.value for one in SecurityProtocol]},
    "mechanism": {"enum": [one.value for one in SaslMechanism]},
    "clock": {"enum": ["wall", "event"]},
    "logLevel": {"enum": ["DEBUG", "INFO", "WARNING", "ERROR"]},
    "targetCPUUtilizationPercentage": {"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
    "type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "trafficDistribution": {"enum": ["", "PreferClose", "PreferSameZone", "PreferSameNode"]},
    "externalTrafficPolicy": {"enum": ["", "Cluster", "Local"]},
    "whenScaled": {"enum": ["Delete", "Retain"]},
    "whenDeleted": {"enum": ["Delete", "Retain"]},
    "master": {"type": "string", "pattern": "^local\\[([1-9][0-9]*|\\*)\\]$"},
    "driverMemory": _HEAP,
    "memoryOverhead": _HEAP,
    "instances": _COUNT,
    "cores": _POSITIVE,
    "extraEgress": {"type": "object", "additionalProperties": _OBJECTS},
}
"""Name of a value -> its schema, wherever it is."""

_SCHEDULED: Final = ("scheduled.lakeUpkeep", "scheduled.exports", "scheduled.audienceReport", "scheduled.campaignReport")
_BY_PATH: Final[Mapping[str, Mapping[str, Any]]] = {
    **{f"spark.{name}.executors.memory": _HEAP for name in ("profiles", "lake", "views", *_SCHEDULED)},
    **{f"{name}.executors.memory": _HEAP for name in _STARTED},
    "spark.profiles.replicas": {"enum": [0, 1]},
    "spark.lake.replicas": {"enum": [0, 1]},
    "spark.views.replicas": {"enum": [0, 1]},
    "ingest.autoscaling.kind": {"enum": ["hpa"]},
    "api.autoscaling.kind": {"enum": ["hpa"]},
    "projector.autoscaling.kind": {"enum": ["auto", "keda", "hpa"]},
    "delivery.autoscaling.kind": {"enum": ["auto", "keda", "hpa"]},
    "email.autoscaling.kind": {"enum": ["auto", "keda", "hpa"]},
    **{f"{name}.autoscaling.metrics": _OBJECTS for name in ("ingest", "api", "projector", "delivery", "email", "tracker")},
}
_HOSTS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["host", "paths"],
        "properties": {
            "host": {"type": "string"},
            "paths": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["path", "pathType"],
                    "properties": {
                        "path": {"type": "string"},
                        "pathType": {"enum": ["Exact", "Prefix", "ImplementationSpecific"]},
                    },
                },
            },
        },
    },
}


def variables(model: type[BaseModel], prefix: str = "STARLING_") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each variable that the model reads, with its schema: of the model, or a text."""
    properties = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *(() if get_origin(field.annotation) is dict else get_args(field.annotation)))
        group = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if group is not None:
            yield from variables(group, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}", _setting(properties[name])


def _setting(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a variable. A number may also be a text, as all variables are."""
    chosen = next((one for one in found.get("anyOf", ()) if one.get("type") != "null"), found)
    described = {"description": found["description"]} if "description" in found else {}
    kind = chosen.get("type", "string")
    bounds = {name: chosen[name] for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if name in chosen}
    limits = {name: chosen[name] for name in ("pattern", "enum") if name in chosen}
    return {"type": kind if kind == "string" else [kind, "string"], **bounds, **limits, **described}


def settings(block: str) -> Mapping[str, Any]:
    """Return the schema of `settings` of a block: the variables of its process, without those that other values set."""
    others = tuple(prefix for prefix in (*_OWN, *_IMPORTS) if prefix != _STARTED.get(block))
    names = {name: schema for name, schema in variables(MODELS[block]) if not name.startswith(others)}
    return {"type": "object", "additionalProperties": False, "properties": names}


def schema_of(value: Any, path: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """Return the schema of a value by its path, else by its name, else by its default."""
    name = path[-1] if path else ""
    if name == "settings":
        return settings(path[-2])
    if name == "hosts":
        return _HOSTS
    known = _BY_PATH.get(".".join(path)) or (None if name == "metrics" else _BY_NAME.get(name))
    if known is not None:
        return known
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"{'.'.join(path)}: an open object needs a line in tools/chart_schema.py")
        properties = {key: schema_of(inner, (*path, key)) for key, inner in value.items()}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, str):
        return {"type": "string"}
    raise ValueError(f"{'.'.join(path)}: a value of type {type(value).__name__} needs a line in tools/chart_schema.py")


def document() -> str:
    """Return the schema as JSON."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    found = schema_of(values)
    # Helm passes the values for subcharts under `global`.
    properties = {**found["properties"], "global": _OBJECT}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart starling"}
    return json.dumps({**head, **found, "properties": properties}, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema; return the exit code."""
    SCHEMA.write_text(document())
    return 0


if __name__ == "__main__":
    sys.exit(main())
