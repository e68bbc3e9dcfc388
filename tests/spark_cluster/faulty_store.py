"""Between clients and an object store: answers some requests with 503, or ends connections in the middle of an answer."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal
from urllib.parse import urlsplit

from starling_common.testing import free_port

Behaviour = Literal["faultless", "refusing", "cutting"]
SHARE: Final = 0.3
"""Of the pieces of data that a fault hits."""
_CHUNK: Final = 65_536
_METHODS: Final = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
_REFUSAL: Final = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultyStore:
    """Passes bytes on in both directions, so that signatures stay valid.

    `behaviour`: refusing: some requests get 503, as from a store that limits its clients; cutting: some answers end early.
    `hits`: the number of faults.
    """

    def __init__(self, store: str, address: str) -> None:
        """Listen at a free port of the address. `store`: the URL of the store."""
        found = urlsplit(store)
        self._store = (str(found.hostname), int(found.port or 80))
        self._listener = socket.create_server((address, free_port()), backlog=128)
        host, port = self._listener.getsockname()[:2]
        self.endpoint = f"http://{host}:{port}"
        self.behaviour: Behaviour = "faultless"
        self.hits = 0
        threading.Thread(target=self._accept, name="faulty store", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._store) as store:
            back = threading.Thread(target=self._answers, args=(store, client), daemon=True)
            back.start()
            self._requests(client, store)
            back.join()

    def _requests(self, client: socket.socket, store: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(_CHUNK):
                if self.behaviour == "refusing" and chunk.startswith(_METHODS) and self._hit():
                    client.sendall(_REFUSAL)
                    break
                store.sendall(chunk)
        _end(client, store)

    def _answers(self, store: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while chunk := store.recv(_CHUNK):
                if self.behaviour == "cutting" and self._hit():
                    client.sendall(chunk[: len(chunk) // 2])
                    break
                client.sendall(chunk)
        _end(client, store)

    def _hit(self) -> bool:
        hit = random.random() < SHARE
        self.hits += hit
        return hit


def _end(*connections: socket.socket) -> None:
    for one in connections:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_store(store: str, address: str) -> Iterator[FaultyStore]:
    """Run it before a store for the duration of a block. It starts without faults."""
    made = FaultyStore(store, address)
    try:
        yield made
    finally:
        made.close()
