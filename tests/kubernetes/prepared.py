"""What an operator prepares in a cluster for the files of `helm/starling/ci`: namespaces, classes and secrets."""

from collections.abc import Mapping
from typing import Any, Final

from tests.kubernetes.api import Api, Manifest
from tests.kubernetes.control_plane import wait_until
from tests.kubernetes.kubelet import PROVISIONER

SECRETS: Final[Mapping[str, tuple[str, ...]]] = {
    "starling-keys": ("write-keys",),
    "starling-tokens": ("tokens",),
    "cassandra-starling": ("username", "password"),
    "kafka-starling": ("secret",),
    "registry-starling": ("user", "word"),
    "sealing-keys": ("sealing",),
    "link-keys": ("links",),
    "kafka-ca": ("ca.pem",),
    "registry-ca": ("ca.pem",),
    "cassandra-ca": ("ca.pem",),
    "kafka-certificate": ("tls.crt", "tls.key"),
    "registry-certificate": ("tls.crt", "tls.key"),
    "cassandra-certificate": ("tls.crt", "tls.key"),
    "ca": ("ca.crt",),
}
"""Secret -> its keys. A pod that refers to another one does not start."""

RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
"""The label of a namespace whose pods have to satisfy the restricted Pod Security Standard."""


def prepare_cluster(api: Api) -> None:
    """Create what all namespaces share, and the namespace that the values of `everything` name."""
    storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": PROVISIONER}
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.create({**storage, "metadata": {"name": "standard", "annotations": default}})
    api.create({**storage, "metadata": {"name": "local-nvme"}})
    for name in ("high", "starling-edge"):
        api.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})
    api.create({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc"})
    api.create(_namespace("monitoring"))


def prepare_namespace(api: Api, name: str) -> None:
    """Create a restricted namespace with the secrets, the service account and the claim that the values refer to."""
    api.create(_namespace(name))
    for secret, keys in SECRETS.items():
        api.create(_object("Secret", name, secret, stringData=dict.fromkeys(keys, "value")))
    api.create(_object("ServiceAccount", name, "api"))
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    api.create(_object("PersistentVolumeClaim", name, "checkpoints", spec=claim))
    # The controllers create these two in every namespace, some time later.
    wait_until(lambda: _has(api, name, "serviceaccounts", "default"), "the default service account")
    wait_until(lambda: _has(api, name, "configmaps", "kube-root-ca.crt"), "the certificate of the cluster")


def _has(api: Api, namespace: str, plural: str, name: str) -> bool:
    return bool(api.items(f"/api/v1/namespaces/{namespace}/{plural}", fieldSelector=f"metadata.name={name}"))


def _namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}


def _object(kind: str, namespace: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": name}, **fields}
