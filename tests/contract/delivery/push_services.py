"""The services that take notifications, on this machine over TLS: a push service of browsers, FCM with its tokens, and APNs."""

import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qs

import h2.config
import h2.connection
import h2.events
import http_ece
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from starling_delivery.channels.push.keys import FCM_SCOPE, base64url, from_base64url
from tests.certificates import Authority
from tests.contract.delivery.endpoint import Endpoint, Received, answering

PROJECT, TEAM, KEY_ID, APP = "shop-1", "TEAM123456", "KEY1234567", "com.example.shop"


class Certificates:
    """The authority of a test, and the TLS of its servers."""

    def __init__(self, folder: Path) -> None:
        authority = Authority("services of the test")
        certificate, key = authority.issue("127.0.0.1")
        self.ca_file = str(folder / "ca.pem")
        (folder / "ca.pem").write_bytes(authority.certificate)
        (folder / "server.pem").write_bytes(certificate + key)
        self._chain = str(folder / "server.pem")

    def context(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._chain)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


class TlsEndpoint(Endpoint):
    """An endpoint over TLS."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        self._server.socket = certificates.context().wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"


class Browser:
    """A browser that has subscribed, and can read what its push service gets."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._auth = os.urandom(16)

    def subscription(self, endpoint: str, **keys: str) -> str:
        """The address of the browser, as the messenger has it."""
        own = {"p256dh": base64url(public_bytes(self._key)), "auth": base64url(self._auth)}
        found = {"endpoint": endpoint, "expirationTime": None, "keys": own | keys}
        return json.dumps(found, sort_keys=True, separators=(",", ":"))

    def decrypted(self, body: bytes) -> str:
        """The payload of a request."""
        found: bytes = http_ece.decrypt(body, private_key=self._key, auth_secret=self._auth, version="aes128gcm")
        return found.decode()


class FakeGoogle(TlsEndpoint):
    """The token endpoint, which checks each assertion, and FCM, which checks each token."""

    def __init__(self, certificates: Certificates, public: rsa.RSAPublicKey) -> None:
        super().__init__(certificates)
        self.tokens: list[str] = []
        self.revoked: set[str] = set()
        self.refuses_accounts = False
        self.of_message: Callable[[Any], None] = answering(200, json.dumps({"name": f"projects/{PROJECT}/messages/1"}).encode())
        self._public = public
        self.respond = self._respond

    @property
    def messages(self) -> list[Received]:
        return [request for request in self.requests if request.path != "/token"]

    def _respond(self, handler: Any) -> None:
        # The last request of this path: the tests of tokens send one after another.
        request = [one for one in self.requests if one.path == handler.path][-1]
        if handler.path == "/token":
            self._grant(handler, request)
        elif request.headers["authorization"].removeprefix("Bearer ") in set(self.tokens) - self.revoked:
            self.of_message(handler)
        else:
            fcm_error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")(handler)

    def _grant(self, handler: Any, request: Received) -> None:
        found = parse_qs(request.body.decode())
        claims = jwt.decode(found["assertion"][0], self._public, ["RS256"], audience=f"{self.url}/token")
        assert found["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert (claims["iss"], claims["scope"]) == (f"sender@{PROJECT}.example", FCM_SCOPE)
        if self.refuses_accounts:
            answering(400, b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}')(handler)
            return
        self.tokens.append(f"token-{len(self.tokens) + 1}")
        answering(200, json.dumps({"access_token": self.tokens[-1], "expires_in": 3599, "token_type": "Bearer"}).encode())(handler)


def fcm_error(status: int, name: str, message: str = "", code: str | None = None, **headers: str) -> Callable[[Any], None]:
    """An error of FCM. `code`: its own error code, beside the one of all APIs of Google."""
    details = [] if code is None else [{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}]
    error = {"error": {"code": status, "message": message, "status": name, "details": details}}
    return answering(status, json.dumps(error).encode(), **headers)


class FakeApns:
    """An HTTP/2 server. `answers`: token of a device -> status, reason and headers; 200 to any other. It checks provider tokens."""

    def __init__(self, certificates: Certificates, public: ec.EllipticCurvePublicKey) -> None:
        self.requests: list[Received] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.headers: dict[str, str] = {}
        self.expired: set[str] = set()
        self.connections = 0
        self.loses = self.hangs = False
        self.closing = Event()
        self._public = public
        self._lock = Lock()
        service, context = self, certificates.context("h2")

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError), context.wrap_socket(self.request, server_side=True) as connected:
                    service.serve(connected)

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, connected: ssl.SSLSocket) -> None:
        assert connected.selected_alpn_protocol() == "h2"
        self.connections += 1
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        http.initiate_connection()
        connected.sendall(http.data_to_send())
        heads: dict[int, dict[str, str]] = {}
        bodies: dict[int, bytes] = {}
        while data := connected.recv(65_536):
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    heads[event.stream_id] = {str(name): str(value) for name, value in event.headers}
                    bodies[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                    http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    head = heads[event.stream_id]
                    with self._lock:
                        self.requests.append(Received(head[":path"], head, bodies[event.stream_id]))
                    if self.loses:
                        connected.shutdown(socket.SHUT_RDWR)
                        return
                    if self.hangs:
                        self.closing.wait(30)
                        return
                    self._answer(http, event.stream_id, head)
            connected.sendall(http.data_to_send())

    def _answer(self, http: h2.connection.H2Connection, stream: int, head: Mapping[str, str]) -> None:
        token = head["authorization"].removeprefix("bearer ")
        claims = jwt.decode(token, self._public, ["ES256"])
        assert (claims["iss"], jwt.get_unverified_header(token)["kid"]) == (TEAM, KEY_ID)
        status, reason = self.answers.get(head[":path"].rpartition("/")[2], (200, ""))
        if token in self.expired:
            status, reason = 403, "ExpiredProviderToken"
        http.send_headers(stream, [(":status", str(status)), ("apns-id", head["apns-id"]), *self.headers.items()])
        http.send_data(stream, json.dumps({"reason": reason}).encode() if reason else b"", end_stream=True)

    def close(self) -> None:
        if not self.closing.is_set():
            self.closing.set()
            self._server.shutdown()
            self._server.server_close()


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    """A private key as Google and Apple hand it out."""
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def raw_key(key: ec.EllipticCurvePrivateKey) -> str:
    """A private key as tools for VAPID hand it out."""
    return base64url(key.private_numbers().private_value.to_bytes(32))


def vapid_claims(authorization: str, audience: str) -> tuple[dict[str, Any], bytes]:
    """The claims of a request, checked with the key that it names, and that key."""
    scheme, _, rest = authorization.partition(" ")
    fields = dict(one.strip().split("=", 1) for one in rest.split(","))
    assert scheme == "vapid"
    public = from_base64url(fields["k"])
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
    return jwt.decode(fields["t"], key, ["ES256"], audience=audience), public
