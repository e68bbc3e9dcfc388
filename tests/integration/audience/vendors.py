"""A real HTTP server that behaves as the systems of the adapters do, and remembers who is in which audience."""

import json
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.unit.audience.making import SECRET

MOST_OF_BRAZE = 75
MOST = 10_000


class Answer(NamedTuple):
    """`retry_after`: of the header, in seconds."""

    status: int
    document: object = None
    retry_after: int | None = None


@dataclass
class Vendors:
    """`members`: (audience, user) -> whether the user is in it; of Meta and Google the user is a hash.

    `failing`: adapter -> the answer to every request, until it is removed. `rejected`: users whose elements are errors.
    `before`: called with each request before it is answered.
    """

    members: dict[tuple[str, str], bool] = field(default_factory=dict)
    failing: dict[str, Answer] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    requests: Counter[str] = field(default_factory=Counter)
    forged: int = 0
    before: Callable[[str], None] = lambda _adapter: None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a killed process ends its connections
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="vendors", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def audience(self, name: str) -> set[str]:
        """The users in an audience."""
        with self._lock:
            return {user for (audience, user), is_in in self.members.items() if audience == name and is_in}

    def take(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        adapter = self._adapter(path)
        self.before(adapter)
        with self._lock:
            self.requests[adapter] += 1
            if adapter in self.failing:
                return self.failing[adapter]
            if adapter == "token":
                return Answer(200, {"access_token": "access", "expires_in": 3_600})
            take = {"braze": self._braze, "customerio": self._customerio, "meta": self._meta, "google": self._google}
            return take.get(adapter, self._http)(method, path, headers, json.loads(body), body)

    @staticmethod
    def _adapter(path: str) -> str:
        names = {"/users/track": "braze", "/api/v2/batch": "customerio", "/token": "token"}
        if path.startswith("/v1/audienceMembers:"):
            return "google"
        return names.get(path) or ("meta" if path.startswith("/meta/") else path.removeprefix("/"))

    def _put(self, audience: str, user: str, is_in: bool) -> None:
        self.members[audience, user] = is_in

    def _braze(self, _method: str, _path: str, headers: dict[str, str], document: Any, _body: bytes) -> Answer:
        if headers["authorization"] != "Bearer key":
            return Answer(401, {"message": "Invalid API key"})
        if len(document["attributes"]) > MOST_OF_BRAZE:
            return Answer(400, {"message": "too many objects"})
        errors = []
        for index, one in enumerate(document["attributes"]):
            if one["external_id"] in self.rejected:
                errors.append({"type": "The user is invalid", "input_array": "attributes", "index": index})
                continue
            for name, value in one.items():
                if name.startswith("starling_"):
                    self._put(name.removeprefix("starling_"), one["external_id"], value)
        return Answer(201, {"message": "success", "attributes_processed": len(document["attributes"]), "errors": errors})

    def _customerio(self, _method: str, _path: str, headers: dict[str, str], document: Any, body: bytes) -> Answer:
        if headers["authorization"] != "Basic " + b64encode(b"site:key").decode() or len(body) > 500_000:
            return Answer(401)
        errors = []
        for index, one in enumerate(document["batch"]):
            if one["identifiers"]["id"] in self.rejected:
                errors.append({"batch_index": index, "reason": "invalid", "message": "the person is invalid"})
                continue
            for name, value in one["attributes"].items():
                self._put(name.removeprefix("starling_"), one["identifiers"]["id"], value)
        return Answer(207, {"errors": errors}) if errors else Answer(200, {})

    def _meta(self, method: str, path: str, headers: dict[str, str], document: Any, _body: bytes) -> Answer:
        if headers["authorization"] != "Bearer key":
            return Answer(400, {"error": {"message": "Invalid OAuth access token", "code": 190}})
        audience, payload = path.split("/")[2], document["payload"]
        if payload["schema"] != ["EXTERN_ID", "EMAIL", "PHONE"] or len(payload["data"]) > MOST:
            return Answer(400, {"error": {"message": "Invalid parameter", "code": 100}})
        for extern, _email, _phone in payload["data"]:
            self._put(audience, extern, method == "POST")
        return Answer(200, {"num_received": len(payload["data"]), "num_invalid_entries": 0, "invalid_entry_samples": {}})

    def _google(self, _method: str, path: str, headers: dict[str, str], document: Any, _body: bytes) -> Answer:
        if headers["authorization"] != "Bearer access":
            return Answer(401, {"error": {"status": "UNAUTHENTICATED"}})
        bad = [
            {"field": f"audience_members.audience_members[{index}]", "reason": "INVALID_AUDIENCE_MEMBER"}
            for index, one in enumerate(document["audienceMembers"])
            if one["userData"]["userIdentifiers"][0]["emailAddress"] in self.rejected
        ]
        if bad:
            return Answer(400, {"error": {"message": "There was a problem", "details": [{"fieldViolations": bad}]}})
        audience = document["destinations"][0]["productDestinationId"]
        for one in document["audienceMembers"]:
            self._put(audience, one["userData"]["userIdentifiers"][0]["emailAddress"], path.endswith(":ingest"))
        return Answer(200, {"requestId": "r"})

    def _http(self, _method: str, path: str, headers: dict[str, str], document: Any, body: bytes) -> Answer:
        try:
            Webhook(SECRET).verify(body, headers)
        except WebhookVerificationError:
            self.forged += 1
            return Answer(401)
        errors = []
        for index, one in enumerate(document["items"]):
            if one["user_id"] in self.rejected:
                errors.append({"index": index, "message": "the user is invalid"})
            else:
                self._put(f"{path.removeprefix('/')}/{one['segment']}", one["user_id"], one["member"])
        return Answer(200, {"errors": errors})


def hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _handler(vendors: Vendors) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = vendors.take(self.command, self.path, {name.lower(): text for name, text in self.headers.items()}, body)
            content = b"" if answer.document is None else json.dumps(answer.document).encode()
            self.send_response(answer.status)
            if answer.retry_after is not None:
                self.send_header("Retry-After", str(answer.retry_after))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = _answer  # noqa: N815 - the library's names
        do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    return Handler
