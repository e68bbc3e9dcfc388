"""The chart, rendered by the real Helm: its pods parse their environment, its objects fit together, and bad values are refused."""

import inspect
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import yaml
from kubernetes import client
from pydantic import SecretStr
from pydantic_settings import BaseSettings

from starling_api.jobs.kubernetes import KubernetesJob
from starling_api.jobs.wiring import Job
from starling_api.jobs.wiring import template as template_of
from starling_api.settings import ApiSettings
from starling_audience.supervisor import JOIN_SECONDS
from starling_broadcaster.writer import TRANSACTION_MS as BROADCAST_MS
from starling_common.deploy import DeploySettings
from starling_common.http.outbound import addresses
from starling_common.kafka.access.deploy import AclSettings
from starling_common.kafka.access.rights import load_services
from starling_common.kafka.topics import load_catalogue
from starling_common.security.sealing import Sealer
from starling_common.settings import Cassandra
from starling_common.verify import VerifySettings
from starling_delivery.feeds.journal import TRANSACTION_MS as FEED_MS
from starling_delivery.feeds.supervisor import STOP_SECONDS as FEEDS_STOP_SECONDS
from starling_delivery.messages.ledger import TRANSACTION_MS
from starling_delivery.settings import EmailSettings, FeedSettings
from starling_delivery.settings import Settings as DeliverySettings
from starling_ingest.settings import Settings as IngestSettings
from starling_scaler.cluster import CALL_SECONDS
from starling_scaler.settings import ScalerSettings
from starling_spark.jobs.profiles.settings import ProfilesSettings
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.stopping import CLOSE_SECONDS
from tests.helm.kubernetes_types import misfits
from tests.helm.rendering import (
    CHART,
    CI,
    NAMESPACE,
    RELEASE,
    ROOT,
    Manifest,
    Workload,
    containers,
    environment,
    helm,
    matches,
    named,
    of_kind,
    rendered,
    started,
    template,
    without_keys,
    workloads,
)
from tools.chart_reference import PAGE, described, page
from tools.chart_reference import VALUES as VALUES_FILE
from tools.chart_schema import MODELS, SCHEMA, document, variables

SCHEDULED = {
    "lakeUpkeep": "lake-upkeep", "exports": "exports", "audienceReport": "audience-report", "campaignReport": "campaign-report",
}  # fmt: skip
"""Block under `spark.scheduled` -> component."""
STARTED = {"backfill": "backfill", "imports": "imports", "sqlTraits": "sql-traits"}
"""Block of a job that the API starts -> component."""
READS: Mapping[str, type[BaseSettings]] = {
    **{(SCHEDULED | STARTED).get(block, block): model for block, model in MODELS.items()},
    "deploy": DeploySettings, "test": VerifySettings,
}  # fmt: skip
"""Component -> the settings that its process reads."""
MODULES = {name: f"starling_{name}" for name in MODELS} | {
    **{name: f"starling_spark.jobs.{name.replace('-', '_')}" for name in ("views", *SCHEDULED.values(), *STARTED.values())},
    "deploy": "starling_common.deploy", "test": "starling_common.verify",
    "profiles": "starling_spark.jobs.profiles", "lake": "starling_spark.jobs.lake",
    "email": "starling_delivery", "feeds": "starling_delivery",
}  # fmt: skip
CONNECTED = sorted(READS.keys() - {"scaler", "audience-report"})
"""Components with connections to the broker and the registry."""
USERS = {"test": "auditor", "lake-upkeep": "lake", "exports": "lake"}
"""Component -> the user of the broker whose rights it has, if that is another one's."""
ONCE = frozenset({"deploy", "test", *SCHEDULED.values(), *STARTED.values()})
"""Components that run once: they have no port."""
EXECUTORS = ("views", "lake-upkeep", "backfill", "sql-traits")
"""Components whose executors are pods in `everything`."""
SECRETS = {
    "starling-keys": {"write-keys": "key=default"},
    "starling-tokens": {"tokens": "token=admin:default"},
    "cassandra-starling": {"username": "starling", "password": "secret"},
    "kafka-starling": {"secret": "of kafka"},
    "registry-starling": {"user": "ada", "word": "of the registry"},
    "sealing-keys": {"sealing": f"2026={'A' * 43}="},
    "link-keys": {"links": f"2026={'B' * 43}="},
}
"""The secrets that the files of `ci/` expect to exist."""
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


@cache
def objects(ci: str) -> tuple[Manifest, ...]:
    return tuple(rendered(ci=ci))


EVERY = pytest.mark.parametrize("ci", CI)


@EVERY
def test_helm_lints_it_strictly(ci: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / f"ci/{ci}-values.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


@EVERY
def test_helm_4_renders_the_same(ci: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(CHART / f"ci/{ci}-values.yaml"), major=4)
    assert done.returncode == 0, done.stdout + done.stderr
    assert without_keys(rendered(ci=ci, major=4)) == without_keys(objects(ci))


def test_the_files_for_ci_are_there() -> None:
    assert set(CI) == {"minimal", "production", "demo", "everything"}


@EVERY
def test_every_object_has_a_unique_name_and_texts_where_kubernetes_requires_them(ci: str) -> None:
    places = [(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in objects(ci)]
    assert len(places) == len(set(places))
    for one in objects(ci):
        metadata = one["metadata"]
        assert NAME.fullmatch(metadata["name"]), metadata["name"]
        maps = [metadata["labels"], metadata.get("annotations", {}), one.get("data", {}), one.get("stringData", {})]
        if one["kind"] in {"Deployment", "StatefulSet", "Job", "CronJob"}:
            inner = Workload(one).template["metadata"]
            maps += [inner["labels"], inner.get("annotations", {})]
        for found in maps:
            assert {key: value for key, value in found.items() if not isinstance(value, str)} == {}
        assert all(len(value) <= 63 for value in metadata["labels"].values())


def test_a_release_with_the_longest_name_has_names_that_kubernetes_accepts() -> None:
    for one in rendered({"nameOverride": "n" * 63}, ci="everything"):
        assert len(one["metadata"]["name"]) <= 63


@EVERY
def test_every_pod_has_the_environment_of_its_process(ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = workloads(objects(ci))
    services = {"scaler", "email", "feeds", "messenger", "broadcaster", "audience", "tracker"}
    optional = {"lake", "views", *services, *SCHEDULED.values(), *STARTED.values()}
    assert {one.component for one in found} >= set(READS) - optional
    assert ci != "everything" or {one.component for one in found} == set(READS) - {"audience-report"}
    for one in found:
        model = READS[one.component]
        variables_of_pod = environment(one, objects(ci), SECRETS)
        known = {name for name, _ in variables(model)}
        assert {name for name in variables_of_pod if name.startswith("STARLING_")} <= known, one.component
        with monkeypatch.context() as pod:
            for name in known:
                pod.delenv(name, raising=False)
            for name, value in variables_of_pod.items():
                pod.setenv(name, value)
            settings = model()
        assert one.container["command"] == ["tini", "--", "python", "-m", MODULES[one.component]]
        if one.component in ONCE:
            continue
        assert settings.http.host == "0.0.0.0"  # type: ignore[attr-defined]
        assert [port["containerPort"] for port in one.container["ports"]] == [settings.http.port]  # type: ignore[attr-defined]
        assert settings.instance_id.startswith(one.manifest["metadata"]["name"])  # type: ignore[attr-defined]


def parsed(component: str, values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, ci: str = "minimal") -> BaseSettings:
    """Return the settings of a component's process under these values."""
    manifests = rendered(values, ci)
    [one] = [one for one in workloads(manifests) if one.component == component]
    with monkeypatch.context() as pod:
        for name, value in environment(one, manifests, SECRETS).items():
            pod.setenv(name, value)
        return READS[component]()


def test_values_reach_the_process_with_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"STARLING_STATE_CACHE_BYTES": 1073741824, "STARLING_BACKING_STORE": False, "STARLING_SESSION_TIMEOUT_SECONDS": 45.5}
    segmenter: Any = parsed("segmenter", {"segmenter": {"settings": settings}}, monkeypatch)
    assert (segmenter.state_cache_bytes, segmenter.backing_store, segmenter.session_timeout_seconds) == (1073741824, False, 45.5)
    delivery: Any = parsed("delivery", {"delivery": {"settings": {"STARLING_RETRY_DELAYS_SECONDS": [5, 60]}}}, monkeypatch)
    assert delivery.retry_delays_seconds == (5, 60)
    values = {"spark": {"profiles": {"properties": {"spark.hadoop.fs.s3a.path.style.access": "true"}}}}
    profiles: Any = parsed("profiles", values, monkeypatch)
    assert profiles.spark_properties == {"spark.hadoop.fs.s3a.path.style.access": "true"}
    lake: Any = parsed(
        "lake", {"spark": {"lake": {"enabled": True, "catalog": {"type": "rest", "uri": "https://c.example"}}}}, monkeypatch
    )
    assert lake.lake_catalog == {"type": "rest", "uri": "https://c.example"}


@pytest.mark.parametrize("component", ["ingest", "normalizer", "segmenter", "delivery"])
def test_the_stages_of_an_event_record_traces_if_there_is_a_collector(component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"traces": {"endpoint": "https://collector.example", "ratio": 0.5}}
    traces = parsed(component, values, monkeypatch).traces  # type: ignore[attr-defined]
    assert (traces.endpoint, traces.ratio) == ("https://collector.example", 0.5)
    assert parsed(component, {}, monkeypatch).traces.endpoint is None  # type: ignore[attr-defined]


def mounted_files(component: str, connection: Any, name: str) -> None:
    """Compare the files of the connection's certificates with the volumes of the component's pod."""
    [pod] = [one for one in workloads(objects("everything")) if one.component == component]
    mounted = {mount["mountPath"]: mount["name"] for mount in pod.container["volumeMounts"]}
    volumes = {volume["name"]: volume.get("secret") for volume in pod.spec["volumes"]}
    files = (connection.ssl_ca_file, connection.ssl_certificate_file, connection.ssl_key_file)
    certificate = {"secretName": f"{name}-certificate"}
    assert {file: volumes[mounted[file.rpartition("/")[0]]] for file in files} == {
        f"/etc/starling/{name}/ca/ca.crt": {"secretName": f"{name}-ca", "items": [{"key": "ca.pem", "path": "ca.crt"}]},
        f"/etc/starling/{name}/certificate/tls.crt": certificate,
        f"/etc/starling/{name}/certificate/tls.key": certificate,
    }


@pytest.mark.parametrize("component", CONNECTED)
def test_every_process_connects_to_a_secured_broker(component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = parsed(component, {}, monkeypatch, ci="everything").kafka  # type: ignore[attr-defined]
    assert (kafka.security_protocol, kafka.sasl_mechanism, kafka.sasl_username) == ("SASL_SSL", "SCRAM-SHA-256", "starling")
    assert (kafka.sasl_password, kafka.ssl_check_hostname) == (SecretStr("of kafka"), False)
    mounted_files(component, kafka, "kafka")


OWN_USERS = {"kafka": {"security": {"username": "starling-{service}", "passwordKey": "{service}"}}}


@pytest.mark.parametrize("component", CONNECTED)
def test_each_component_can_have_a_user_of_its_own(component: str) -> None:
    service = USERS.get(component, component)
    assert service in {one.name for one in load_services(load_catalogue())}
    manifests = rendered(OWN_USERS, "everything")
    [pod] = [one for one in workloads(manifests) if one.component == component]
    [password] = [one for one in pod.container["env"] if one["name"] == "STARLING_KAFKA__SASL_PASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {"name": "kafka-starling", "key": service}
    names = [one.get("value") for one in pod.container["env"] if one["name"] == "STARLING_KAFKA__SASL_USERNAME"]
    maps = [one["data"] for one in of_kind(manifests, "ConfigMap") if one["metadata"]["name"].endswith(f"-{component}")]
    names += [data["STARLING_KAFKA__SASL_USERNAME"] for data in maps]
    assert names == [f"starling-{service}"]


def test_the_deploy_step_creates_the_rights_before_the_topics_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    [pod] = [one for one in workloads(rendered(OWN_USERS, "everything")) if one.component == "deploy"]
    assert "initContainers" not in pod.spec
    acls = {"apply": True, "prune": True, "principal": "User:s-{service}", "username": "root", "existingSecret": "kafka-root"}
    values = {"kafka": OWN_USERS["kafka"] | {"acls": acls}}
    [pod] = [one for one in workloads(rendered(values, "everything")) if one.component == "deploy"]
    [container] = pod.spec["initContainers"]
    assert container["command"][-1] == "starling_common.kafka.access.deploy"
    given = {one["name"]: one.get("value", one.get("valueFrom", {}).get("secretKeyRef")) for one in container["env"]}
    assert given["STARLING_KAFKA__SASL_PASSWORD"] == {"name": "kafka-root", "key": "password"}
    for name, value in given.items():
        monkeypatch.setenv(name, value if isinstance(value, str) else "a password")
    settings = AclSettings()
    assert (settings.kafka.sasl_username, settings.acls_principal, settings.acls_prune) == ("root", "User:s-{service}", True)
    [own] = [one["value"] for one in pod.container["env"] if one["name"] == "STARLING_KAFKA__SASL_USERNAME"]
    assert own == "starling-deploy"


def test_a_rotation_of_secrets_replaces_every_pod() -> None:
    before, after = (workloads(rendered({"secretsRevision": revision}, "everything")) for revision in ("1", "2"))
    templates = [{one.component: one.template["metadata"] for one in found} for found in (before, after)]
    same = {component for component, metadata in templates[0].items() if templates[1][component] == metadata}
    assert same == ONCE - {"audience-report"}  # each of their pods is a new one


@pytest.mark.parametrize("component", CONNECTED)
def test_every_process_connects_to_a_secured_registry(component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = parsed(component, {}, monkeypatch, ci="everything").registry  # type: ignore[attr-defined]
    assert (registry.username, registry.password) == ("ada", SecretStr("of the registry"))
    mounted_files(component, registry, "registry")


@pytest.mark.parametrize("component", ["normalizer", "segmenter", "projector", "api", "deploy", "test"])
def test_every_process_that_uses_cassandra_connects_with_tls(component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cassandra = parsed(component, {}, monkeypatch, ci="everything").cassandra  # type: ignore[attr-defined]
    assert (cassandra.ssl, cassandra.ssl_check_hostname) == (True, False)
    mounted_files(component, cassandra, "cassandra")


@pytest.mark.parametrize("component", ["normalizer", "segmenter", "projector", "api", "deploy", "test"])
def test_credentials_reach_each_process_that_uses_cassandra(component: str, monkeypatch: pytest.MonkeyPatch) -> None:
    password = "of 100% {{ \"signs\" }}: $(HOME), \\ and 'quotes'"
    auth: Any = parsed(component, {"cassandra": {"auth": {"username": "ada", "password": password}}}, monkeypatch)
    assert (auth.cassandra.user, auth.cassandra.password) == ("ada", SecretStr(password))
    found: Any = parsed(component, {"cassandra": {"auth": {"existingSecret": "cassandra-starling"}}}, monkeypatch)
    assert (found.cassandra.user, found.cassandra.password) == ("starling", SecretStr("secret"))


def test_existing_secrets_win_and_the_chart_creates_none() -> None:
    secrets = {"ingest": {"writeKeys": {"existingSecret": "starling-keys", "value": "other=shop"}}}
    assert of_kind(rendered(secrets | {"secretKeys": {"existingSecret": "sealing-keys"}}), "Secret") == []


def test_the_api_and_the_channels_alone_have_the_key_that_the_chart_generates(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"email": {"enabled": True}, "feeds": {"enabled": True}}
    manifests = rendered(values)
    secret = named(manifests, "Secret", f"{RELEASE}-starling-secret-keys")
    # A second rendering has another key: it must not replace the first, and an uninstallation must not delete it.
    assert secret["immutable"]
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    variables = {one.component: environment(one, manifests, SECRETS) for one in workloads(manifests)}
    assert {name for name, given in variables.items() if "STARLING_SECRETS__KEYS" in given} == {"api", "delivery", "email", "feeds"}
    for component in ("api", "delivery", "email", "feeds"):
        assert Sealer.of(parsed(component, values, monkeypatch).secrets).key_id == "generated"  # type: ignore[attr-defined]
        assert Sealer.of(parsed(component, {}, monkeypatch, "everything").secrets).key_id == "2026"  # type: ignore[attr-defined]


def test_mails_lead_to_the_tracker_with_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"email": {"enabled": True}, "tracker": {"enabled": True, "publicUrl": "https://t.example.com"}}
    manifests = rendered(values)
    secret = named(manifests, "Secret", f"{RELEASE}-starling-link-keys")
    # With another key the links in every sent mail would be invalid.
    assert secret["immutable"]
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    given = {one.component: environment(one, manifests, SECRETS) for one in workloads(manifests)}
    assert {name for name, variables in given.items() if "STARLING_LINKS__KEYS" in variables} == {"email", "tracker"}
    assert given["email"]["STARLING_LINKS__KEYS"] == given["tracker"]["STARLING_LINKS__KEYS"]
    # Callbacks are signed with secrets of targets, some of them with the address.
    assert given["tracker"]["STARLING_SECRETS__KEYS"] == given["email"]["STARLING_SECRETS__KEYS"]
    assert given["tracker"]["STARLING_PUBLIC_URL"] == "https://t.example.com"
    email: Any = parsed("email", values, monkeypatch)
    assert str(email.email.tracker_url) == "https://t.example.com/"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tracker": {"enabled": True}}, r"tracker\.publicUrl: set the address of the tracker"),
        (
            {
                "tracker": {"enabled": True, "publicUrl": "https://t.example.com"},
                "email": {"enabled": True, "settings": {"STARLING_EMAIL__UNSUBSCRIBE_URL": "https://u.example.com"}},
            },
            r"STARLING_EMAIL__UNSUBSCRIBE_URL: remove it",
        ),
    ],
)
def test_mails_lead_to_one_place(values: dict[str, Any], problem: str) -> None:
    done = template({"email": {"enabled": True}} | values)
    assert done.returncode != 0
    assert re.search(problem, done.stderr)


def test_no_secret_is_in_a_config_map_or_in_a_pod() -> None:
    values = {
        "cassandra": {"auth": {"username": "ada", "password": "hidden-1"}},
        "ingest": {"writeKeys": {"existingSecret": "", "value": "hidden-2=default"}},
        "api": {"tokens": {"existingSecret": "", "value": "hidden-3=admin:default"}},
    }
    manifests = rendered(values)
    assert "hidden-" not in json.dumps([one for one in manifests if one["kind"] != "Secret"])
    assert {number for number in "123" if f"hidden-{number}" in json.dumps(of_kind(manifests, "Secret"))} == set("123")


def test_the_api_may_create_and_delete_the_jobs_that_it_starts_and_has_them() -> None:
    manifests = objects("everything")
    [api] = [one for one in workloads(manifests) if one.component == "api"]
    given = environment(api, manifests, SECRETS)
    [mount] = [one for one in api.container["volumeMounts"] if one["mountPath"] == given["STARLING_JOB_TEMPLATES"]]
    [volume] = [one for one in api.spec["volumes"] if one["name"] == mount["name"]]
    files = named(manifests, "ConfigMap", volume["configMap"]["name"])["data"]
    jobs: tuple[Job, ...] = get_args(Job)
    for job in jobs:
        assert given[f"STARLING_{job.upper()}_RUNNER"] == "kubernetes"
        assert template_of(ApiSettings.model_construct(job_templates=""), job).name in files
        sent = client.V1Job.model_validate_json(files[f"{job}.json"])
        assert sent.model_dump(mode="json", by_alias=True, exclude_none=True) == json.loads(files[f"{job}.json"])
    role, binding = (named(manifests, kind, "prod-segments-jobs") for kind in ("Role", "RoleBinding"))
    assert binding["subjects"][0]["name"] == api.spec["serviceAccountName"]
    assert api.spec["automountServiceAccountToken"] is True
    [create, own] = role["rules"]
    assert create["verbs"] == ["create"]
    assert set(own["resourceNames"]) == {one["metadata"]["name"] for one in started(manifests)}
    calls = set(re.findall(r"self\._api\.(\w+?)_namespaced_job\(", inspect.getsource(KubernetesJob)))
    assert {*create["verbs"], *own["verbs"]} == {"get" if call == "read" else call for call in calls}


def test_an_api_that_starts_no_jobs_has_no_rights_and_no_token() -> None:
    manifests = objects("minimal")
    [api] = [one for one in workloads(manifests) if one.component == "api"]
    assert api.spec["automountServiceAccountToken"] is False
    assert [one for one in manifests if one["metadata"]["name"].endswith("-jobs")] == []


def test_a_job_of_the_api_is_not_an_object_of_the_release() -> None:
    """A tool that prunes what the chart does not contain would delete it."""
    for job in started(objects("everything")):
        assert "app.kubernetes.io/instance" not in job["metadata"]["labels"]
        assert "app.kubernetes.io/managed-by" not in job["metadata"]["labels"]


def test_the_job_of_imports_may_reach_ingest_and_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = objects("everything")
    settings: Any = parsed("imports", {}, monkeypatch, "everything")
    assert settings.roots() == ["file:///imports"]
    [edge] = [one for one in of_kind(manifests, "Service") if one["metadata"]["name"].endswith("-ingest")]
    assert settings.imports_ingest_url.startswith(f"http://{edge['metadata']['name']}.")
    assert settings.imports_ingest_url.endswith(f":{edge['spec']['ports'][0]['port']}")
    [served] = [one for one in of_kind(manifests, "Service") if one["metadata"]["name"].endswith("-api")]
    assert settings.imports_api_url.startswith(f"http://{served['metadata']['name']}.")
    assert settings.imports_api_url.endswith(f":{served['spec']['ports'][0]['port']}")
    assert settings.secrets.keys.get_secret_value() == SECRETS["sealing-keys"]["sealing"]


@pytest.mark.parametrize(("job", "has_lake"), [("backfill", True), ("sql-traits", True), ("imports", False)])
def test_a_job_of_the_api_reads_the_tables_that_the_lake_job_writes(
    job: str, has_lake: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake: Any = parsed("lake", {}, monkeypatch, "everything")
    given: Any = parsed(job, {}, monkeypatch, "everything")
    if has_lake:
        assert (given.lake_warehouse, given.lake_catalog) == (lake.lake_warehouse, lake.lake_catalog)
    else:
        assert given.lake_warehouse == ""
    assert any("iceberg" in jar.name for jar in given.jars()) == has_lake


def test_ingest_and_the_api_accept_the_job_of_imports_where_policies_restrict_them() -> None:
    values = {
        "networkPolicy": {"enabled": True, "ingestFrom": [{"namespaceSelector": {}}], "apiFrom": [{"namespaceSelector": {}}]},
        "imports": {"enabled": True, "envFrom": [{"secretRef": {"name": "keys"}}], "executors": {"instances": 2}},
    }
    policies = of_kind(rendered(values), "NetworkPolicy")

    def of(component: str) -> Manifest:
        [found] = [
            one for one in policies if one["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component") == component
        ]
        return found

    labels = of("imports")["spec"]["podSelector"]["matchLabels"]
    for name in ("ingest", "api"):
        sources = [source for rule in of(name)["spec"]["ingress"] for source in rule.get("from", ())]
        assert labels in [source["podSelector"]["matchLabels"] for source in sources if "podSelector" in source]
    servers = [53, 53, 9092, 8081, 9042]
    for component, ports in (
        ("imports", [*servers, 443, 6443, 7079, 8080]),
        ("imports-executor", [53, 53, 7078, 7079, *servers[2:], 8080]),
    ):
        assert [port["port"] for rule in of(component)["spec"]["egress"] for port in rule["ports"]] == ports


@pytest.mark.parametrize("job", EXECUTORS)
def test_a_driver_accepts_its_executors(job: str) -> None:
    policy = named(objects("everything"), "NetworkPolicy", f"prod-segments-{job}")
    [rule] = [one for one in policy["spec"]["ingress"] if {"port": 7078} in one["ports"]]
    [peer] = rule["from"]
    assert peer["podSelector"]["matchLabels"].items() <= executor_pod(job)["metadata"]["labels"].items()


@EVERY
def test_selectors_find_the_pods_of_one_workload(ci: str) -> None:
    pods = workloads(objects(ci))
    for one in of_kind(objects(ci), "Deployment", "StatefulSet"):
        assert [pod.manifest for pod in pods if matches(one["spec"]["selector"]["matchLabels"], pod.labels)] == [one]
    for one in of_kind(objects(ci), "Service"):
        [pod] = [pod for pod in pods if matches(one["spec"]["selector"], pod.labels)]
        ports = {port["name"] for port in pod.container["ports"]}
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports
    for one in of_kind(objects(ci), "PodDisruptionBudget"):
        [pod] = [pod for pod in pods if matches(one["spec"]["selector"]["matchLabels"], pod.labels)]
        assert pod.manifest["metadata"]["name"] == one["metadata"]["name"]
        assert sum(key in one["spec"] for key in ("minAvailable", "maxUnavailable")) == 1
    for one in of_kind(objects(ci), "StatefulSet"):
        assert named(objects(ci), "Service", one["spec"]["serviceName"])["spec"]["clusterIP"] == "None"
    for pod in pods:
        for constraint in pod.spec.get("topologySpreadConstraints", ()):
            assert matches(constraint["labelSelector"]["matchLabels"], pod.labels), "it would match no pod"


@EVERY
def test_every_volume_account_and_claim_of_a_pod_exists(ci: str) -> None:
    accounts = {one["metadata"]["name"] for one in of_kind(objects(ci), "ServiceAccount")}
    for pod in workloads(objects(ci)):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        claims = {claim["metadata"]["name"] for claim in pod.manifest["spec"].get("volumeClaimTemplates", ())}
        assert {mount["name"] for mount in pod.container["volumeMounts"]} <= {*volumes, *claims}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim in {None, "checkpoints", "shop-files"} or named(objects(ci), "PersistentVolumeClaim", claim)
        assert pod.spec["serviceAccountName"] in {*accounts, "api"}


def test_proxies_send_requests_to_a_port_of_a_service() -> None:
    manifests = objects("everything")
    [ingress], routes = of_kind(manifests, "Ingress"), of_kind(manifests, "HTTPRoute")
    for path in ingress["spec"]["rules"][0]["http"]["paths"]:
        backend = path["backend"]["service"]
        ports = named(manifests, "Service", backend["name"])["spec"]["ports"]
        assert backend["port"]["name"] in {port["name"] for port in ports}
    assert len(routes) == 2
    for route in routes:
        [backend] = route["spec"]["rules"][0]["backendRefs"]
        assert backend["port"] in {port["port"] for port in named(manifests, "Service", backend["name"])["spec"]["ports"]}


@EVERY
def test_no_container_is_root_or_can_write_its_root_filesystem(ci: str) -> None:
    for pod in workloads(objects(ci)):
        context = pod.spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any(pod.spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
        assert not any("hostPath" in volume for volume in pod.spec["volumes"])
        assert {"name": "tmp", "emptyDir": {}} in pod.spec["volumes"]
        for container in containers(pod):
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True, container["name"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"]["drop"] == ["ALL"]
            assert own.get("runAsUser", 10001) > 0
            assert own.get("runAsNonRoot", True) is True


def test_where_the_cluster_assigns_the_ids_the_chart_sets_none() -> None:
    manifests = rendered({"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}})
    for pod in workloads(manifests):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod.spec["securityContext"].keys()
        assert pod.spec["securityContext"]["runAsNonRoot"] is True


@EVERY
def test_only_pods_that_call_kubernetes_have_a_token(ci: str) -> None:
    # The API starts jobs; the scaler sets replicas, which its workers read when they stop; a driver creates executors.
    calls = {"api", "scaler", "normalizer", "segmenter"} if ci in {"production", "everything"} else set()
    calls |= set(EXECUTORS) if ci == "everything" else set()
    with_token = {pod.component for pod in workloads(objects(ci)) if pod.spec["automountServiceAccountToken"]}
    assert with_token == calls
    assert all(one["automountServiceAccountToken"] is False for one in of_kind(objects(ci), "ServiceAccount"))
    assert all(pod.spec["enableServiceLinks"] is False for pod in workloads(objects(ci)))


@EVERY
def test_probes_ask_for_the_paths_of_the_processes(ci: str) -> None:
    for pod in workloads(objects(ci)):
        if pod.component in ONCE:
            continue
        probes = {name: pod.container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert probes == {
            "startupProbe": {"path": "/healthz", "port": "http"},
            "livenessProbe": {"path": "/healthz", "port": "http"},
            "readinessProbe": {"path": "/readyz", "port": "http"},
        }
        liveness = pod.container["livenessProbe"]
        assert liveness["periodSeconds"] * liveness["failureThreshold"] == 30, "as docs/how-to/operator.md states"


def test_a_pod_has_more_time_to_stop_than_its_process_needs() -> None:
    def default(model: type[BaseSettings], name: str) -> float:
        seconds: float = model.model_fields[name].default
        return seconds

    needed = {
        "ingest": VALUES["ingest"]["preStopSeconds"] + default(IngestSettings, "drain_timeout_seconds"),
        "api": VALUES["api"]["preStopSeconds"] + default(ApiSettings, "body_timeout_seconds"),
        "delivery": default(DeliverySettings, "timeout_seconds") + default(DeliverySettings, "lookup_timeout_seconds"),
        # The claim, the attempt, and the transaction of its outcome.
        "email": default(EmailSettings, "timeout_seconds") + 2 * TRANSACTION_MS / 1000,
        "profiles": default(ProfilesSettings, "profiles_stop_seconds") + CLOSE_SECONDS,
        "lake": default(LakeSettings, "lake_stop_seconds") + CLOSE_SECONDS,
        "views": default(MODELS["views"], "views_stop_seconds") + CLOSE_SECONDS,
        # A decision about two stages, with four calls and a scrape each, and the two calls that give the Lease up.
        "scaler": 8 * CALL_SECONDS + 2 * default(ScalerSettings, "scrape_timeout_seconds") + 2 * CALL_SECONDS,
        # The transaction that is open, and the time after which a worker leaves without an answer of the broker.
        "normalizer": default(MODELS["normalizer"], "transaction_timeout_seconds") + 10,
        "segmenter": default(MODELS["segmenter"], "transaction_timeout_seconds") + 10,
        "messenger": default(MODELS["messenger"], "transaction_timeout_seconds") + 10,
        "broadcaster": BROADCAST_MS / 1000 + 10,
        "feeds": FEEDS_STOP_SECONDS + default(FeedSettings, "timeout_seconds") + FEED_MS / 1000,
        "audience": JOIN_SECONDS + default(MODELS["audience"], "timeout_seconds"),
    }
    manifests = rendered({"spark": {"views": {"enabled": True}}}, "production")
    given = {pod.component: pod.spec.get("terminationGracePeriodSeconds") for pod in workloads(manifests)}
    assert {name for name, seconds in needed.items() if given[name] <= seconds} == set()


def test_workers_are_stateful_sets_whose_pods_are_members_of_the_group() -> None:
    found = of_kind(objects("production"), "StatefulSet")
    assert {Workload(one).component for one in found} == {"normalizer", "segmenter", "messenger"}
    for one in found:
        spec = one["spec"]
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenScaled": "Delete", "whenDeleted": "Retain"}
        [claim] = spec["volumeClaimTemplates"]
        assert claim["spec"]["storageClassName"] == "local-nvme"
        [mount] = [mount for mount in Workload(one).container["volumeMounts"] if mount["name"] == claim["metadata"]["name"]]
        assert mount["mountPath"] == environment(Workload(one), objects("production"), SECRETS)["STARLING_STATE_DIR"]


def test_without_a_volume_the_stores_are_in_the_pod() -> None:
    [one] = [one for one in of_kind(objects("demo"), "StatefulSet") if Workload(one).component == "segmenter"]
    assert "volumeClaimTemplates" not in one["spec"]
    assert {"name": "state", "emptyDir": {"sizeLimit": "4Gi"}} in Workload(one).spec["volumes"]


def test_a_spark_job_never_runs_twice() -> None:
    jobs = [one for one in of_kind(objects("production"), "Deployment") if Workload(one).component in {"profiles", "lake"}]
    assert [(one["spec"]["replicas"], one["spec"]["strategy"]) for one in jobs] == [(1, {"type": "Recreate"})] * 2
    for one in jobs:
        given = environment(Workload(one), objects("production"), SECRETS)
        [mount] = [mount for mount in Workload(one).container["volumeMounts"] if mount["name"] == "state"]
        assert given["STARLING_CHECKPOINT_DIR"].startswith(mount["mountPath"])


def test_a_scheduled_job_starts_only_after_the_former_run_of_it() -> None:
    jobs = of_kind(objects("everything"), "CronJob")
    found = {Workload(one).component: one["spec"] for one in jobs}
    assert set(found) == {"lake-upkeep", "exports", "campaign-report"}
    assert {(one["concurrencyPolicy"], one["timeZone"]) for one in found.values()} == {("Forbid", "Asia/Tokyo")}
    assert {name for name, one in found.items() if one["suspend"]} == {"campaign-report"}
    arguments = {Workload(one).component: Workload(one).container.get("args") for one in jobs}
    report = ["--out", "s3a://shop-lake/reports/campaigns", "--overwrite"]
    assert arguments == {"lake-upkeep": None, "exports": ["run", "members"], "campaign-report": report}
    assert {Workload(one).spec["serviceAccountName"] for one in jobs} == {"prod-segments-scheduled"}
    account = named(objects("everything"), "ServiceAccount", "prod-segments-scheduled")
    assert account["metadata"]["annotations"]["example.com/role"] == "lake"


def test_a_scheduled_job_reads_the_tables_that_the_lake_job_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    lake: Any = parsed("lake", {}, monkeypatch, "everything")
    exports: Any = parsed("exports", {}, monkeypatch, "everything")
    assert (exports.lake_warehouse, exports.lake_catalog) == (lake.lake_warehouse, lake.lake_catalog)
    assert exports.spark_properties == {"spark.hadoop.fs.s3a.endpoint": "https://s3.example"}
    assert {name: one.to for name, one in exports.exports.items()} == {"members": "s3://shop-lake/members"}


def test_computed_traits_read_the_lake_only_if_the_operator_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lake: Any = parsed("lake", {}, monkeypatch, "everything")
    profiles: Any = parsed("profiles", {}, monkeypatch, "everything")
    assert (profiles.lake_warehouse, profiles.lake_catalog) == (lake.lake_warehouse, lake.lake_catalog)
    assert [jar.name for jar in profiles.jars()] == [jar.name for jar in lake.jars()]
    plain: Any = parsed("profiles", {"spark": {"profiles": {"readsLake": False}}}, monkeypatch, "everything")
    assert plain.lake_warehouse == ""
    assert not any("iceberg" in jar.name for jar in plain.jars())


def test_the_audience_report_gets_the_database_and_ends_at_the_time_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    block = {"enabled": True, "settings": {"STARLING_TIMEZONES": "default=Asia/Tokyo"}}
    values = {"spark": {"scheduled": {"audienceReport": block}}}
    report: Any = parsed("audience-report", values, monkeypatch)
    assert (report.cassandra.contact_points, report.timezones) == ("cassandra-0,cassandra-1", "default=Asia/Tokyo")
    assert report.lake_warehouse == ""
    [job] = of_kind(rendered(values), "CronJob")
    assert "args" not in Workload(job).container


def test_the_jars_are_those_that_the_build_downloads() -> None:
    maven = ROOT / "apps/local/starling_local/runtime/maven"
    for bundles, name in ((["spark"], "jars"), (["iceberg", "jdbc"], "icebergJars")):
        lines = [line for bundle in bundles for line in (maven / bundle / "SHA256SUMS").read_text().splitlines()]
        assert VALUES["spark"][name] == sorted(line.split()[1] for line in lines)


@pytest.mark.parametrize(("custom", "kind"), [(["keda.sh/v1alpha1"], "ScaledObject"), ([], "HorizontalPodAutoscaler")])
def test_consumers_are_scaled_by_lag_where_keda_is_installed(custom: Sequence[str], kind: str) -> None:
    on = {"autoscaling": {"enabled": True}}
    manifests = rendered({"projector": on, "delivery": on, "ingest": on, "api": on}, custom=custom)
    names = {f"{RELEASE}-starling-{name}" for name in ("projector", "delivery")}
    assert {one["metadata"]["name"] for one in of_kind(manifests, kind)} >= names
    edge = {f"{RELEASE}-starling-{name}" for name in ("ingest", "api")}
    assert {one["metadata"]["name"] for one in of_kind(manifests, "HorizontalPodAutoscaler")} == edge | (
        names if not custom else set()
    )
    for one in of_kind(manifests, "ScaledObject", "HorizontalPodAutoscaler"):
        deployment = named(manifests, "Deployment", one["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in deployment["spec"], "an upgrade would undo the scaling"


def test_keda_reads_the_groups_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for values in ({}, {"settings": {"STARLING_GROUP": "other"}}):
        for component, ends in (("projector", ("", "-events")), ("delivery", ("", "-retry")), ("email", ("", "-retry"))):
            block = {component: {**values, "enabled": True, "autoscaling": {"enabled": True, "kind": "keda"}}}
            [scaled] = of_kind(rendered(block), "ScaledObject")
            settings: Any = parsed(component, block, monkeypatch)
            groups = [trigger["metadata"]["consumerGroup"] for trigger in scaled["spec"]["triggers"]]
            assert groups == [settings.group + end for end in ends]
            if component != "projector":
                assert groups[1] == settings.retry_group
            assert all(isinstance(value, str) for trigger in scaled["spec"]["triggers"] for value in trigger["metadata"].values())
            assert scaled["spec"]["minReplicaCount"] >= 1


def test_every_alert_is_rendered_as_it_is_written() -> None:
    [rule] = of_kind(objects("production"), "PrometheusRule")
    written = yaml.safe_load((CHART / "rules/alerts.yaml").read_text())["groups"]
    for one in (one for group in written for one in group["rules"]):
        one["annotations"]["runbook_url"] = f"https://docs.example/starling/{one['annotations']['runbook']}"
    assert rule["spec"]["groups"] == written


def test_alerts_have_the_labels_of_the_values_and_can_be_left_out() -> None:
    [rule] = of_kind(objects("everything"), "PrometheusRule")
    written = yaml.safe_load((CHART / "rules/alerts.yaml").read_text())["groups"]
    names = {one["alert"] for group in written for one in group["rules"]}
    found = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert {one["alert"] for one in found} == names - {"StarlingStandbyBehind"}
    assert all(one["labels"]["team"] == "growth" and one["labels"]["severity"] for one in found)


def test_every_process_is_scraped_under_the_name_that_the_alerts_use() -> None:
    manifests = objects("everything")
    monitors = of_kind(manifests, "ServiceMonitor")
    scraped = set()
    for one in monitors:
        [service] = [
            service
            for service in of_kind(manifests, "Service")
            if matches(one["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
        ]
        assert service["metadata"]["namespace"] in one["spec"]["namespaceSelector"]["matchNames"]
        [endpoint] = one["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert endpoint["path"] == "/metrics"
        [job] = [rule["replacement"] for rule in endpoint["relabelings"] if rule["targetLabel"] == "job"]
        scraped.add(job)
    assert scraped == {f"starling-{pod.component}" for pod in workloads(manifests) if pod.component not in ONCE}


def _flows(policy: Manifest, direction: str) -> set[tuple[int, str]]:
    """Return port and protocol of each flow; a range by its first port."""
    return {
        (port["port"], port.get("protocol", "TCP")) for rule in policy["spec"].get(direction, ()) for port in rule.get("ports", ())
    }


FURTHER_PORTS = {
    **dict.fromkeys(("api", "delivery", "feeds", "audience"), (443, 1024)), "tracker": (443,), "email": (25, 443, 465, 587, 1024),
    **dict.fromkeys(("test", "scaler", "imports"), (8080,)),
}  # fmt: skip
"""Component -> ports that it requests, beside those of its connections."""


@pytest.mark.parametrize("ci", ["production", "everything"])
def test_network_policies_allow_what_the_settings_connect_to_and_nothing_else(ci: str) -> None:
    manifests = objects(ci)
    pods = workloads(manifests)
    policies = {one["metadata"]["name"]: one for one in of_kind(manifests, "NetworkPolicy")}
    [deny] = [one for name, one in policies.items() if name.endswith("-default-deny")]
    assert set(deny["spec"]) == {"podSelector", "policyTypes"}
    assert deny["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert all(matches(deny["spec"]["podSelector"]["matchLabels"], pod.labels) for pod in pods)
    kafka, registry, cassandra = {"production": ({9092}, 8081, 9042), "everything": ({9092, 9093}, 443, 9142)}[ci]
    for pod in pods:
        [policy] = [
            one for one in policies.values() if one is not deny and matches(one["spec"]["podSelector"]["matchLabels"], pod.labels)
        ]
        expected = {(53, "UDP"), (53, "TCP")}
        if pod.component != "scaler":
            expected |= {(registry, "TCP"), *((port, "TCP") for port in kafka)}
        if any(name.startswith("STARLING_CASSANDRA__") for name in environment(pod, manifests, SECRETS)):
            expected.add((cassandra, "TCP"))
        if ci == "production" and pod.component in {"ingest", "normalizer", "segmenter", "delivery", "messenger", "email"}:
            expected.add((4318, "TCP"))
        expected |= {(port, "TCP") for port in FURTHER_PORTS.get(pod.component, ())}
        has_executors = ci == "everything" and pod.component in EXECUTORS
        if has_executors or pod.component in {"api", "scaler", "normalizer", "segmenter"}:
            expected |= {(443, "TCP"), (6443, "TCP")}
        if has_executors:
            expected.add((7079, "TCP"))
        if pod.component in {"backfill", "imports", "lake", "sql-traits"} and ci == "everything":
            expected.add((443, "TCP"))
        assert _flows(policy, "egress") == expected, pod.component
        assert all(rule.get("ports") for rule in policy["spec"]["egress"]), "a rule without ports allows every port"
        requests = set() if pod.component in ONCE else {(8080, "TCP")}
        if has_executors:
            requests |= {(7078, "TCP"), (7079, "TCP")}
        assert _flows(policy, "ingress") == requests
        open_to_all = [rule for rule in policy["spec"].get("ingress", ()) if not rule.get("from")]
        assert bool(open_to_all) == (ci == "everything" and pod.component in {"ingest", "api", "tracker"})


@pytest.mark.parametrize("job", EXECUTORS)
def test_executors_exchange_data_with_their_own_job_alone(job: str) -> None:
    policy = named(objects("everything"), "NetworkPolicy", f"prod-segments-{job}-executor")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= executor_pod(job)["metadata"]["labels"].items()
    assert _flows(policy, "ingress") == {(7079, "TCP")}
    servers = {(9092, "TCP"), (9093, "TCP"), (443, "TCP")} | ({(9142, "TCP")} if job in {"views", "sql-traits"} else set())
    assert _flows(policy, "egress") == {(53, "UDP"), (53, "TCP"), (7078, "TCP"), (7079, "TCP")} | servers
    peers = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"]]
    components = {peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers}
    assert components == {job, f"{job}-executor"}


def executor_pod(job: str) -> dict[str, Any]:
    """Return the template from which the driver of a job creates the pods of its executors."""
    text = named(objects("everything"), "ConfigMap", f"prod-segments-{job}-executor")["data"]["pod.yaml"]
    pod: dict[str, Any] = yaml.safe_load(text)
    return pod


@pytest.mark.parametrize(("job", "instances", "cores"), [("views", "3", "4"), ("lake-upkeep", "4", "2")])
def test_the_driver_creates_executors_with_the_template_and_the_rights_of_the_chart(
    job: str, instances: str, cores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = parsed(job, {}, monkeypatch, "everything")
    assert (settings.spark_master, settings.spark_driver_host) == ("k8s://https://kubernetes.default.svc", "10.0.0.5")
    assert settings.checkpoint_dir == ("s3a://shop-lake/checkpoints" if job == "views" else "/tmp")
    given = settings.spark_properties
    assert (given["spark.executor.instances"], given["spark.executor.cores"]) == (instances, cores)
    assert given["spark.hadoop.fs.s3a.endpoint"] == "https://s3.example"
    [driver] = [one for one in workloads(objects("everything")) if one.component == job]
    assert given["spark.kubernetes.authenticate.executor.serviceAccountName"] == driver.spec["serviceAccountName"]
    binding = named(objects("everything"), "RoleBinding", f"prod-segments-{job}")
    assert [one["name"] for one in binding["subjects"]] == [driver.spec["serviceAccountName"]]
    assert given["spark.kubernetes.container.image"] == driver.container["image"]
    directory = given["spark.kubernetes.executor.podTemplateFile"].removesuffix("/pod.yaml")
    [mount] = [one for one in driver.container["volumeMounts"] if one["mountPath"] == directory]
    [volume] = [one for one in driver.spec["volumes"] if one["name"] == mount["name"]]
    assert volume["configMap"] == {"name": f"prod-segments-{job}-executor"}
    role = named(objects("everything"), "Role", f"prod-segments-{job}")
    assert [one["resources"] for one in role["rules"]] == [["pods", "configmaps"]]

    pod = executor_pod(job)
    assert list(misfits(pod, "V1Pod", "pod")) == []
    [container] = pod["spec"]["containers"]
    assert container["name"] == given["spark.kubernetes.executor.podTemplateContainerName"]
    assert container["command"] == ["tini", "--", "python", "-m", "starling_spark.submit"]
    assert (container["securityContext"], pod["spec"]["securityContext"]) == (
        driver.container["securityContext"], driver.spec["securityContext"],
    )  # fmt: skip
    secrets = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one}
    drivers = {one["name"]: one["valueFrom"].get("secretKeyRef") for one in driver.container["env"] if "valueFrom" in one}
    assert secrets.items() <= drivers.items()
    assert {"STARLING_KAFKA__SASL_PASSWORD", "STARLING_REGISTRY__PASSWORD"} <= set(secrets)
    assert ("STARLING_CASSANDRA__PASSWORD" in secrets) == (job == "views")
    mounts = {one["mountPath"] for one in driver.container["volumeMounts"]} - {directory, "/var/lib/starling"}
    assert {one["mountPath"] for one in container["volumeMounts"]} == mounts


def test_the_processes_that_get_the_address_of_cassandra_are_those_that_read_it() -> None:
    for pod in workloads(objects("production")):
        given = any(name.startswith("STARLING_CASSANDRA__") for name in environment(pod, objects("production"), SECRETS))
        annotation = READS[pod.component].model_fields.get("cassandra")
        assert given == (annotation is not None), f"{pod.component} {Cassandra.__name__}"


def test_webhooks_reach_every_address_that_delivery_allows_and_no_other() -> None:
    refused = [str(network) for network in addresses._SPECIAL if network.version == 4]
    assert VALUES["networkPolicy"]["webhooksExceptIPv4"] == refused
    policies = {one["metadata"]["name"].rpartition("-")[2]: one for one in of_kind(objects("production"), "NetworkPolicy")}
    for name in ("api", "delivery", "feeds"):
        [rule] = [one for one in policies[name]["spec"]["egress"] if any("ipBlock" in peer for peer in one.get("to", ()))]
        assert rule["to"][0]["ipBlock"] == {"cidr": "0.0.0.0/0", "except": refused}
        assert rule["ports"] == [{"port": 443}, {"port": 1024, "endPort": 65535}]


def test_what_the_deploy_step_needs_exists_before_it() -> None:
    manifests = objects("everything")
    hooks = {
        (one["kind"], one["metadata"]["name"]): int(one["metadata"]["annotations"]["helm.sh/hook-weight"])
        for one in manifests
        if one["metadata"].get("annotations", {}).get("helm.sh/hook", "test") != "test"
    }
    [job] = [one for one in of_kind(manifests, "Job") if Workload(one).component == "deploy"]
    name = job["metadata"]["name"]
    assert set(hooks) == {("Job", name), ("ServiceAccount", name), ("Secret", name), ("NetworkPolicy", name)}
    assert all(weight < hooks["Job", name] for place, weight in hooks.items() if place[0] != "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert not any(
        "configMapRef" in source and not source["configMapRef"].get("optional") for source in Workload(job).container["envFrom"]
    )
    of_release = {one["metadata"]["name"] for one in of_kind(manifests, "Secret")} - {name}
    for variable in Workload(job).container["env"]:
        secret = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("name", name)
        assert secret not in of_release, "a secret of the release does not exist before its first installation"


@EVERY
def test_hooks_leave_nothing_behind_but_jobs_that_remove_themselves(ci: str) -> None:
    hooks = [one for one in objects(ci) if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    for one in hooks:
        policies = one["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
        assert "before-hook-creation" in policies
        assert ("hook-succeeded" in policies) is (one["kind"] != "Job"), one["kind"]
        assert one["kind"] != "Job" or one["spec"]["ttlSecondsAfterFinished"] > 0


@EVERY
def test_the_service_account_of_a_hook_exists_whenever_its_job_runs(ci: str) -> None:
    def events(one: Manifest) -> set[str]:
        return set(one["metadata"]["annotations"]["helm.sh/hook"].split(","))

    for job in [one for one in of_kind(objects(ci), "Job") if one not in started(objects(ci))]:
        account = named(objects(ci), "ServiceAccount", Workload(job).spec["serviceAccountName"])
        assert events(job) <= events(account)
        assert int(account["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0


@EVERY
def test_helm_test_asks_the_services_of_the_release(ci: str) -> None:
    manifests = objects(ci)
    [job] = [one for one in workloads(manifests) if one.component == "test"]
    assert job.manifest["metadata"]["annotations"]["helm.sh/hook"] == "test"
    urls = environment(job, manifests, SECRETS)["STARLING_VERIFY_URLS"].split(",")
    asked = {(url.host, url.port or 80) for url in map(httpx.URL, urls) if url.path == "/readyz"}
    services = {
        (one["metadata"]["name"], port["port"])
        for one in of_kind(manifests, "Service")
        if one["metadata"]["labels"]["app.kubernetes.io/component"] in {"ingest", "api"}
        for port in one["spec"]["ports"]
        if port["name"] == "http"
    }
    assert len(asked) == len(urls)
    assert asked == services


def test_closed_services_let_helm_test_in() -> None:
    manifests = objects("production")
    [test] = [pod for pod in workloads(manifests) if pod.component == "test"]
    for name in ("ingest", "api"):
        [policy] = [one for one in of_kind(manifests, "NetworkPolicy") if one["metadata"]["name"].endswith(f"-{name}")]
        peers = [peer for rule in policy["spec"]["ingress"] for peer in rule.get("from", ())]
        assert any(matches(peer["podSelector"]["matchLabels"], test.labels) for peer in peers if set(peer) == {"podSelector"})


def _checksums(values: Mapping[str, Any]) -> dict[str, str]:
    pods = [pod for pod in workloads(rendered(values, ci="demo")) if pod.component not in ONCE]
    return {pod.component: pod.template["metadata"]["annotations"]["checksum/config"] for pod in pods}


@pytest.mark.parametrize(
    ("values", "restarted"),
    [
        ({"segmenter": {"settings": {"STARLING_STANDBY_REPLICAS": 1}}}, {"segmenter"}),
        ({"ingest": {"writeKeys": {"value": "other=default"}}}, {"ingest"}),
        ({"api": {"tokens": {"value": "other=admin:default"}}}, {"api"}),
        ({"cassandra": {"auth": {"username": "ada", "password": "one"}}}, {"normalizer", "segmenter", "projector", "api"}),
        ({"segmenter": {"replicas": 2}}, set()),
    ],
)
def test_a_change_of_the_configuration_restarts_the_pods_that_read_it(values: Mapping[str, Any], restarted: set[str]) -> None:
    before, after = _checksums({}), _checksums(values)
    assert {name for name in before if before[name] != after[name]} == restarted


def test_a_new_version_of_the_chart_alone_restarts_no_pod(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "starling")
    metadata = tmp_path / "starling/Chart.yaml"
    metadata.write_text(re.sub(r"^version: .*$", "version: 99.0.0", metadata.read_text(), flags=re.MULTILINE))
    new = rendered(chart=tmp_path / "starling")
    templates = {pod.component: pod.template for pod in workloads(objects("minimal"))}
    assert {pod.component: pod.template for pod in workloads(new)} == templates


def test_images_have_the_registry_the_tag_and_the_digest_of_the_values() -> None:
    images = {pod.component: pod.container["image"] for pod in workloads(objects("everything"))}
    assert images["ingest"] == "registry.example/edge@sha256:" + "0" * 64
    assert images["segmenter"] == "registry.example/starling-segmenter:0.1.0-1"
    [api] = [pod for pod in workloads(objects("minimal")) if pod.component == "api"]
    assert api.container["image"] == f"starling-api:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"


GUIDE_VALUES = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/how-to/kubernetes.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("blocks", range(1, len(GUIDE_VALUES) + 1))
def test_the_values_of_the_guide_are_accepted(blocks: int, tmp_path: Path) -> None:
    files = []
    for number, text in enumerate(GUIDE_VALUES[:blocks]):
        (tmp_path / f"{number}.yaml").write_text(text)
        files += ["--values", str(tmp_path / f"{number}.yaml")]
    preset = ("--values", str(CHART / "presets/medium-values.yaml"))
    for words in (files, (*preset, *files)):
        done = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *words)
        assert done.returncode == 0, done.stderr


def test_the_tutorial_builds_the_images_of_its_values() -> None:
    tutorial = (ROOT / "docs/tutorial/kubernetes.md").read_text()
    [targets] = re.findall(r"^for target in (.+); do$", tutorial, re.MULTILINE)
    images = {pod.container["image"].partition(":")[0] for pod in workloads(objects("demo"))}
    assert {f"starling-{target}" for target in targets.split()} == images


def test_the_guide_names_the_user_of_each_component() -> None:
    guide = (ROOT / "docs/how-to/kubernetes.md").read_text()
    [sentence] = re.findall(r"The secret `kafka-users` has the keys (.+?)\.", guide, re.DOTALL)
    users = {USERS.get(component, component) for component in (*CONNECTED, "audience-report")}
    assert set(re.findall(r"`([a-z-]+)`", sentence)) == users


def test_every_option_of_a_pod_reaches_it() -> None:
    [pod] = [pod for pod in workloads(objects("everything")) if pod.component == "ingest"]
    values = yaml.safe_load((CHART / "ci/everything-values.yaml").read_text())["ingest"]
    for name in ("nodeSelector", "affinity", "tolerations", "priorityClassName", "runtimeClassName"):
        assert pod.spec[name] == values[name], name
    [constraint] = pod.spec["topologySpreadConstraints"]
    assert values["topologySpreadConstraints"][0].items() <= constraint.items()
    assert pod.spec["initContainers"] == values["initContainers"]
    assert values["extraContainers"][0] in pod.spec["containers"]
    assert values["extraVolumes"][0] in pod.spec["volumes"]
    assert values["extraVolumeMounts"][0] in pod.container["volumeMounts"]
    assert values["extraEnv"][0] in pod.container["env"]
    assert values["envFrom"][0] in pod.container["envFrom"]
    assert values["podLabels"].items() <= pod.labels.items()
    assert values["podAnnotations"].items() <= pod.template["metadata"]["annotations"].items()
    assert values["annotations"].items() <= pod.manifest["metadata"]["annotations"].items()
    assert pod.spec["securityContext"]["fsGroup"] == 20001
    assert pod.container["securityContext"]["runAsUser"] == 20001
    service = named(objects("everything"), "Service", pod.manifest["metadata"]["name"])
    for name in ("type", "trafficDistribution", "loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy"):
        assert service["spec"][name] == values["service"][name], name


def test_a_spread_constraint_keeps_its_own_selector() -> None:
    given = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    [pod] = [pod for pod in workloads(rendered({"api": {"topologySpreadConstraints": [given]}})) if pod.component == "api"]
    assert pod.spec["topologySpreadConstraints"] == [given]


def _leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name, value in values.items():
        found |= (
            _leaves(value, (*path, name)) if isinstance(value, Mapping) and value and name != "environment" else {(*path, name)}
        )
    return found


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    objects_of_kubernetes = {
        "resources", "strategy", "updateStrategy", "behavior", "matches", "podSecurityContext", "containerSecurityContext",
        "retention", "labels", "startupProbe", "livenessProbe", "readinessProbe", "settings",
    }  # fmt: skip
    unused = [
        ".".join(path)
        for path in _leaves(VALUES)
        if not objects_of_kubernetes & set(path) and not re.search(rf'[."]{path[-1]}\b', text)
    ]
    assert unused == []


def test_the_schema_is_that_of_the_values_and_of_the_settings() -> None:
    assert SCHEMA.read_text() == document(), "make chart-schema"


def test_every_value_has_a_description_and_the_reference_is_current() -> None:
    text = VALUES_FILE.read_text()
    assert described(text).undescribed == []
    assert PAGE.read_text() == page(text), "make values-reference"


def test_a_value_without_a_description_would_be_found() -> None:
    found = described(
        "# A block.\nblock:\n  # -- A map\n  # of two lines.\n  map: {a: 1}\n  none: 1\n  list:\n    - a: 1\n      b: 2\n"
    )
    assert found.undescribed == ["block.none", "block.list"]
    assert [(value.path, value.default, value.text) for value in found.values] == [
        (("block", "map"), {"a": 1}, "A map of two lines.")
    ]
    assert found.titles == {("block",): "A block."}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"ingest": {"replica": 3}}, "'/ingest': additional properties 'replica' not allowed"),
        ({"ingest": {"replicas": "three"}}, "'/ingest/replicas': got string, want integer"),
        ({"ingest": {"replicas": -1}}, "'/ingest/replicas': minimum"),
        ({"kafka": {"brokers": "kafka-0"}}, "'/kafka/brokers': 'kafka-0' does not match"),
        ({"kafka": {"security": {"protocol": "TLS"}}}, "'/kafka/security/protocol': value must be one of"),
        ({"kafka": {"security": {"mechanism": "GSSAPI"}}}, "'/kafka/security/mechanism': value must be one of"),
        ({"schemaRegistry": {"url": "registry:8081"}}, "'/schemaRegistry/url'"),
        ({"cassandra": {"port": 70000}}, "'/cassandra/port': maximum"),
        ({"cassandra": {"keyspace": "Starling"}}, "'/cassandra/keyspace'"),
        ({"segmenter": {"settings": {"STARLING_STANDBY_REPLICA": 1}}}, "'/segmenter/settings': additional properties"),
        ({"segmenter": {"settings": {"STARLING_STANDBY_REPLICAS": 9}}}, "'/segmenter/settings/STARLING_STANDBY_REPLICAS': maximum"),
        (
            {"ingest": {"settings": {"STARLING_WRITE_KEYS": "a=b"}}},
            "'/ingest/settings': additional properties 'STARLING_WRITE_KEYS'",
        ),
        ({"api": {"settings": {"STARLING_KAFKA__BROKERS": "a:1"}}}, "'/api/settings': additional properties"),
        ({"clock": "walls"}, "'/clock': value must be one of"),
        ({"logLevel": "debug"}, "'/logLevel': value must be one of"),
        ({"profilePartitions": 0}, "'/profilePartitions': minimum"),
        ({"spark": {"profiles": {"replicas": 2}}}, "'/spark/profiles/replicas'"),
        ({"spark": {"profiles": {"master": "k8s://https://kubernetes"}}}, "'/spark/profiles/master'"),
        ({"ingest": {"image": {"digest": "latest"}}}, "'/ingest/image/digest'"),
        ({"image": {"pullPolicy": "always"}}, "'/image/pullPolicy'"),
        ({"ingest": {"service": {"type": "External"}}}, "'/ingest/service/type'"),
        ({"ingest": {"ingress": {"hosts": [{"name": "a"}]}}}, "'/ingest/ingress/hosts/0'"),
        ({"segmenter": {"persistence": {"size": "fifty"}}}, "'/segmenter/persistence/size'"),
        ({"commonLabels": {"team": 1}}, "'/commonLabels/team': got number, want string"),
        ({"ingest": {"autoscaling": {"kind": "keda"}}}, "'/ingest/autoscaling/kind'"),
        ({"projector": {"autoscaling": {"minReplicas": 0}}}, "'/projector/autoscaling/minReplicas': minimum"),
        ({"scaler": {"segmenter": {"maxReplicas": 0}}}, "'/scaler/segmenter/maxReplicas': minimum"),
        (
            {"scaler": {"settings": {"STARLING_SEGMENTER__STATEFUL_SET": "a"}}},
            "'/scaler/settings': additional properties 'STARLING_SEGMENTER__STATEFUL_SET'",
        ),
        ({"networkpolicy": {"enabled": True}}, "additional properties 'networkpolicy' not allowed"),
    ],
)
def test_a_bad_value_is_refused_with_its_path(values: Mapping[str, Any], path: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert path in done.stderr


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kafka": {"brokers": ""}}, "kafka.brokers: set the addresses"),
        ({"kafka": {"security": {"protocol": "SASL_SSL"}}}, "kafka.security: SASL_SSL needs username and existingSecret"),
        ({"kafka": {"security": {"caSecret": "ca"}}}, "kafka.security.protocol: PLAINTEXT uses no certificates"),
        ({"kafka": {"acls": {"apply": True}}}, "kafka.acls.apply: a broker knows no users"),
        ({"kafka": {"acls": {"username": "root"}}}, "kafka.acls: username and existingSecret belong together"),
        ({"cassandra": {"security": {"caSecret": "ca"}}}, "cassandra.security.ssl: the other values have no effect"),
        ({"schemaRegistry": {"url": ""}}, "schemaRegistry.url: set the root"),
        ({"cassandra": {"contactPoints": ""}}, "cassandra.contactPoints: set the hosts"),
        ({"cassandra": {"auth": {"username": "ada"}}}, "cassandra.auth.password: set it"),
        ({"ingest": {"writeKeys": {"existingSecret": ""}}}, "ingest.writeKeys.existingSecret: set the secret"),
        ({"api": {"tokens": {"existingSecret": ""}}}, "api.tokens.existingSecret: set the secret"),
        ({"deploy": {"replicationFactor": 1}}, "deploy.replicationFactor: with 1"),
        ({"cassandra": {"replicationFactor": 1}}, "cassandra.replicationFactor: with 1"),
        (
            {"ingest": {"autoscaling": {"enabled": True, "minReplicas": 20}}},
            "ingest.autoscaling.minReplicas: 20 is above maxReplicas (12)",
        ),
        (
            {"projector": {"autoscaling": {"enabled": True, "kind": "keda"}}},
            "projector.autoscaling.kind: the cluster has no keda.sh",
        ),
        (
            {"ingest": {"terminationGracePeriodSeconds": 10}},
            "ingest.terminationGracePeriodSeconds: must be above preStopSeconds (10)",
        ),
        ({"ingest": {"ingress": {"enabled": True}}}, "ingest.ingress.hosts: set at least one host"),
        ({"api": {"httpRoute": {"enabled": True}}}, "api.httpRoute.enabled: the cluster has no gateway.networking.k8s.io/v1"),
        ({"api": {"httpRoute": {"enabled": True}}}, "api.httpRoute.parentRefs: set the gateway"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "metrics.serviceMonitor.enabled: the cluster has no monitoring"),
        ({"metrics": {"prometheusRule": {"enabled": True}}}, "metrics.prometheusRule.enabled: the cluster has no monitoring"),
        ({"spark": {"lake": {"enabled": True, "persistence": {"enabled": False}}}}, "spark.lake.warehouse: set a location"),
        (
            {"spark": {"profiles": {"executors": {"instances": 2}}}},
            "spark.profiles.checkpoints: executors in pods of their own need a URI",
        ),
        (
            {"spark": {"lake": {"enabled": True, "executors": {"instances": 2}, "checkpoints": "s3a://a/b", "warehouse": "/lake"}}},
            "spark.lake.warehouse: executors in pods of their own need a URI",
        ),
        (
            {"spark": {"lake": {"warehouse": "/lake"}, "scheduled": {"exports": {"enabled": True, "executors": {"instances": 2}}}}},
            "spark.lake.warehouse: spark.scheduled.exports has executors in pods of their own, which need a URI",
        ),
        ({"spark": {"profiles": {"readsLake": True}}}, "spark.profiles.readsLake: set spark.lake.warehouse"),
        (
            {"spark": {"lake": {"warehouse": "s3a://lake"}, "profiles": {"readsLake": True}}},
            "spark.profiles.readsLake: set spark.lake.catalog to one with several writers",
        ),
        ({"spark": {"scheduled": {"exports": {"enabled": True}}}}, "spark.scheduled.exports.enabled: set spark.lake.warehouse"),
        (
            {"spark": {"lake": {"warehouse": "s3a://lake"}, "scheduled": {"lakeUpkeep": {"enabled": True}}}},
            "spark.scheduled.lakeUpkeep.enabled: set spark.lake.catalog to one with several writers",
        ),
        ({"spark": {"scheduled": {"campaignReport": {"enabled": True}}}}, "spark.scheduled.campaignReport.out: set the directory"),
        (
            {"clock": "event", "spark": {"scheduled": {"audienceReport": {"enabled": True}}}},
            "audienceReport.enabled: needs clock=wall",
        ),
        ({"sqlTraits": {"enabled": True}}, "sqlTraits.enabled: set spark.lake.warehouse"),
        ({"backfill": {"enabled": True, "readsLake": True}}, "backfill.readsLake: set spark.lake.warehouse"),
        (
            {"spark": {"lake": {"warehouse": "s3a://lake"}}, "imports": {"enabled": True, "readsLake": True}},
            "imports.readsLake: set spark.lake.catalog to one with several writers",
        ),
        (
            {
                "spark": {"lake": {"warehouse": "/lake", "catalog": {"type": "jdbc"}}},
                "sqlTraits": {"enabled": True, "executors": {"instances": 2}},
            },
            "spark.lake.warehouse: sqlTraits has executors in pods of their own, which need a URI",
        ),
        ({"imports": {"enabled": True}}, "imports.envFrom: name a secret with STARLING_IMPORTS_WRITE_KEYS"),
        (
            {"imports": {"enabled": True, "volumeClaim": "files", "executors": {"instances": 2}}},
            "imports.volumeClaim: executors in pods of their own do not have it",
        ),
        ({"api": {"enabled": False}, "backfill": {"enabled": True}}, "backfill.enabled: set api.enabled too"),
        (
            {"scaler": {"enabled": True, "segmenter": {"minReplicas": 9}}},
            "scaler.segmenter.minReplicas: 9 is above maxReplicas (8)",
        ),
        (
            {"scaler": {"enabled": True, "normalizer": {"maxReplicas": 65}}},
            "scaler.normalizer.maxReplicas: 65 is above profilePartitions (64)",
        ),
        (
            {"scaler": {"enabled": True, "normalizer": {"enabled": False}, "segmenter": {"enabled": False}}},
            "scaler.enabled: no stage is scaled",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_cure(values: Mapping[str, Any], message: str) -> None:
    done = template(values, custom=())
    assert done.returncode != 0
    assert message in done.stderr


def test_the_notes_name_commands_for_objects_that_exist(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "starling")
    # Without a cluster Helm prints the notes of no chart, so an object contains them.
    (tmp_path / "starling/templates/notes.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\n"
        'data:\n  text: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}\n'
    )
    manifests = rendered(ci="demo", chart=tmp_path / "starling")
    notes = named(manifests, "ConfigMap", "notes")["data"]["text"]
    forwarded = re.findall(r"port-forward service/(\S+) \d+:(\d+)", notes)
    assert len(forwarded) == 2
    for name, port in forwarded:
        assert named(manifests, "Service", name)["spec"]["ports"][0]["port"] == int(port)
    assert "acknowledgeSingleCopy is true" in notes
    assert notes.count(f"--namespace {NAMESPACE}") == 4


KINDS = {
    "ConfigMap": "V1ConfigMap", "CronJob": "V1CronJob", "Deployment": "V1Deployment",
    "HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler", "Ingress": "V1Ingress", "Job": "V1Job",
    "NetworkPolicy": "V1NetworkPolicy", "PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "PodDisruptionBudget": "V1PodDisruptionBudget", "Role": "V1Role", "RoleBinding": "V1RoleBinding", "Secret": "V1Secret",
    "Service": "V1Service", "ServiceAccount": "V1ServiceAccount", "StatefulSet": "V1StatefulSet",
}  # fmt: skip
CUSTOM_KINDS = {"HTTPRoute", "PrometheusRule", "ScaledObject", "ServiceMonitor"}


@EVERY
def test_every_field_is_one_of_kubernetes(ci: str) -> None:
    assert {one["kind"] for one in objects(ci)} <= {*KINDS, *CUSTOM_KINDS}
    found = [
        misfit
        for one in objects(ci)
        if one["kind"] in KINDS
        for misfit in misfits(one, KINDS[one["kind"]], f"{one['kind']}/{one['metadata']['name']}")
    ]
    assert found == []


def test_a_misplaced_field_would_be_found() -> None:
    [pod] = [pod for pod in workloads(rendered()) if pod.component == "api"]
    broken = {**pod.manifest, "spec": {**pod.manifest["spec"], "replicas": "two", "podManagementPolicy": "Parallel"}}
    assert sorted(misfits(broken, "V1Deployment", "api")) == [
        "api.spec.podManagementPolicy: V1DeploymentSpec has no such field", "api.spec.replicas: int is expected, not 'two'",
    ]  # fmt: skip
