"""An API without a broker and a database, and the bytes of its requests."""

import socket

import httpx

from starling_common.testing import Service

ENVIRONMENT = {
    "STARLING_KAFKA__BROKERS": "127.0.0.1:1",
    "STARLING_REGISTRY__URL": "http://127.0.0.1:1",
    "STARLING_CASSANDRA__CONTACT_POINTS": "127.0.0.1",
    "STARLING_CASSANDRA__PORT": "1",
    "STARLING_TOKENS": "secret=admin:w",
    "STARLING_BODY_TIMEOUT_SECONDS": "1",
    "STARLING_HTTP__MAX_CONNECTIONS_PER_ADDRESS": "400",
    # No connection is closed for its slow headers while a test runs.
    "STARLING_HTTP__HEAD_TIMEOUT_SECONDS": "300",
}


def connect(service: Service) -> socket.socket:
    url = httpx.URL(service.url)
    return socket.create_connection((url.host, url.port or 0), timeout=30)


def post(path: str, token: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: 1000\r\n\r\n{{".encode()
