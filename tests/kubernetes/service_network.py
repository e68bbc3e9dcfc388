"""What kube-proxy and a name server do on a node: each Service is one address of this machine, behind which its ready pods are."""

import random
import socket
import threading
from collections.abc import Callable
from itertools import count
from typing import Final

_LAST_WAIT_SECONDS: Final = 30.0
"""For so long a new connection waits for a ready pod, as a client would that connects again."""
_POLL_SECONDS: Final = 0.1
_CHUNK: Final = 65_536


class Addresses:
    """Unused addresses below 127.0.0.0/8, from a range of this run."""

    def __init__(self) -> None:
        self._prefix = f"127.{random.randint(64, 200)}"
        self._numbers = count(1)

    def new(self) -> str:
        """Return an address that this run has not used."""
        number = next(self._numbers)
        return f"{self._prefix}.{number // 250}.{number % 250 + 1}"


class Forwarder:
    """Listens at one address and port, and connects each client with one of the pods that `choose` returns as host and port."""

    def __init__(self, address: str, port: int, choose: Callable[[], tuple[str, int] | None]) -> None:
        """Raises: OSError if the address is in use."""
        self.place = address, port
        self._choose = choose
        self._closing = threading.Event()
        self._listener = socket.create_server((address, port), backlog=128)
        self._thread = threading.Thread(target=self._accept, name=f"service {address}:{port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections. Those that exist end with one of their ends."""
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            server = self._connected()
            if server is None:
                return
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()

    def _connected(self) -> socket.socket | None:
        for _ in range(round(_LAST_WAIT_SECONDS / _POLL_SECONDS)):
            place = self._choose()
            if place is not None:
                try:
                    return socket.create_connection(place)
                except OSError:
                    pass
            if self._closing.wait(_POLL_SECONDS):
                break
        return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends, then let the target end too."""
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One of the two is gone: so is the connection.
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
