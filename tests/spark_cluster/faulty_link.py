"""Between clients and a server: passes bytes on, and makes faults of the network and of the server."""

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

Behaviour = Literal["faultless", "refusing", "cutting", "hanging", "closed", "slow"]
SHARE: Final = 0.3
"""Of the pieces of data that a fault hits."""
DELAY_SECONDS: Final = 0.5
"""The longest delay of a piece of data."""
_POLL_SECONDS: Final = 0.05
_CHUNK: Final = 65_536
_METHODS: Final = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
_REFUSAL: Final = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultyLink:
    """Passes bytes on in both directions, so that signatures stay valid.

    `behaviour`: refusing: some requests get 503, as from a store that limits its clients; cutting: some answers end early;
    hanging: nothing passes; closed: every connection ends at once; slow: each piece of data has a delay. `hits`: the number
    of pieces that a fault has hit.
    """

    def __init__(self, server: tuple[str, int], place: tuple[str, int]) -> None:
        """Listen at `place`, and connect each client with `server`: host, port (0: a free one). Raises: OSError if it is in use."""
        self._server = server
        self._listener = socket.create_server(place, backlog=128)
        self.place: tuple[str, int] = self._listener.getsockname()[:2]
        self.behaviour: Behaviour = "faultless"
        self.hits = 0
        threading.Thread(target=self._accept, name="faulty link", daemon=True).start()

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
        if self.behaviour == "closed":
            self.hits += 1
            client.close()
            return
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            back = threading.Thread(target=self._answers, args=(server, client), daemon=True)
            back.start()
            self._requests(client, server)
            back.join()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while (chunk := client.recv(_CHUNK)) and self._is_passed():
                if self.behaviour == "refusing" and chunk.startswith(_METHODS) and self._is_hit():
                    client.sendall(_REFUSAL)
                    break
                server.sendall(chunk)
        _end(client, server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while (chunk := server.recv(_CHUNK)) and self._is_passed():
                if self.behaviour == "cutting" and self._is_hit():
                    client.sendall(chunk[: len(chunk) // 2])
                    break
                client.sendall(chunk)
        _end(client, server)

    def _is_passed(self) -> bool:
        """Wait as long as the fault lasts; return False when the connection must end."""
        if self.behaviour in ("hanging", "closed", "slow"):
            self.hits += 1
        if self.behaviour == "slow":
            time.sleep(random.uniform(0, DELAY_SECONDS))  # sleep: the fault
        while self.behaviour == "hanging":
            time.sleep(_POLL_SECONDS)  # sleep: the fault
        return self.behaviour != "closed"

    def _is_hit(self) -> bool:
        is_hit = random.random() < SHARE
        self.hits += is_hit
        return is_hit


def _end(*connections: socket.socket) -> None:
    for one in connections:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_link(server: tuple[str, int], place: tuple[str, int]) -> Iterator[FaultyLink]:
    """Run it before a server for the duration of a block. It starts without faults."""
    made = FaultyLink(server, place)
    try:
        yield made
    finally:
        made.close()
