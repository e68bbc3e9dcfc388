"""The API of Kubernetes as JSON: no field of an object is lost on the way to the server, which validates them all."""

import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

Manifest = Mapping[str, Any]

_TIMEOUT_SECONDS: Final = 30.0
_BUSY_SECONDS: Final = 60.0
"""For so long a request is repeated that the server does not serve yet, such as one for a new type of objects."""
_MERGE: Final = "application/merge-patch+json"


class Refused(Exception):
    """The server's answer to a request that it does not serve. `status`: of HTTP; `reason`: as Kubernetes names it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class Resource(NamedTuple):
    """A type of objects that the server stores. `base`: the path of its group and version."""

    base: str
    plural: str
    kind: str
    namespaced: bool
    verbs: Sequence[str]


class Api:
    """A client of one API server. Threads may share it."""

    def __init__(self, url: str, certificate: Path, token: str) -> None:
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=str(certificate)),
            timeout=_TIMEOUT_SECONDS,
        )
        self._resources: dict[str, list[Resource]] = {}
        self.warnings: list[str] = []
        """What the server has warned of, in answers that it gave nevertheless."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(self, method: str, path: str, body: Any = None, content: str = "application/json", **query: str) -> Any:
        """Return the decoded answer; a text if it is not JSON. Raises: Refused, and httpx.TransportError without an answer."""
        given: dict[str, Any] = {} if body is None else {"json": body, "headers": {"Content-Type": content}}
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            answer = self._client.request(method, path, params=query, **given)
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS or time.monotonic() >= deadline:
                break
            time.sleep(float(answer.headers.get("Retry-After", 1)))  # sleep: as the server demands
        self.warnings += answer.headers.get_list("Warning")
        if answer.is_error:
            if answer.headers.get("Content-Type") != "application/json":
                raise Refused(answer.status_code, answer.reason_phrase, answer.text)
            status = answer.json()
            raise Refused(answer.status_code, status.get("reason", ""), status.get("message", ""))
        return answer.json() if answer.headers.get("Content-Type") == "application/json" else answer.text

    def resources(self) -> list[Resource]:
        """Return every type of objects, with one version for each group."""
        groups = self.request("GET", "/apis")["groups"]
        bases = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        return [resource for base in bases for resource in self._of(base)]

    def path(self, manifest: Manifest, *, named: bool = True) -> str:
        """Return the path of an object, or of the collection that it belongs to. Raises: LookupError for an unknown kind."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        found = [one for one in self._of(base) if one.kind == kind]
        if not found:
            raise LookupError(f"the server knows no {version} {kind}")
        metadata = manifest["metadata"]
        inside = f"/namespaces/{metadata['namespace']}" if found[0].namespaced else ""
        return f"{base}{inside}/{found[0].plural}" + (f"/{metadata['name']}" if named else "")

    def create(self, manifest: Manifest, **query: str) -> Manifest:
        """Create an object, and return it as the server has stored it. Raises: Refused."""
        created: Manifest = self.request("POST", self.path(manifest, named=False), manifest, **query)
        return created

    def get(self, manifest: Manifest) -> Manifest:
        """Return the stored object with the kind, namespace and name of `manifest`. Raises: Refused."""
        found: Manifest = self.request("GET", self.path(manifest))
        return found

    def items(self, path: str, **query: str) -> list[Manifest]:
        """Return the objects of a collection. Raises: Refused."""
        items: list[Manifest] = self.request("GET", path, **query)["items"]
        return items

    def merge(self, path: str, change: Manifest) -> Manifest:
        """Change fields of an object, or of its status by a path that ends with /status; a list is replaced. Raises: Refused."""
        changed: Manifest = self.request("PATCH", path, change, _MERGE)
        return changed

    def _of(self, base: str) -> list[Resource]:
        if base not in self._resources:
            try:
                found = self.request("GET", base)["resources"]
            except Refused as refused:
                if refused.status == httpx.codes.NOT_FOUND:
                    return []
                raise
            self._resources[base] = [
                Resource(base, one["name"], one["kind"], one["namespaced"], one["verbs"]) for one in found if "/" not in one["name"]
            ]
        return self._resources[base]
