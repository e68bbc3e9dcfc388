"""A gate in front of a real server: while it is shut, the server seems to be gone."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Gate:
    """Passes bytes both ways between its own port and a server's, until it is shut."""

    def __init__(self, host: str, port: int, own_port: int = 0) -> None:
        self._server = (host, port)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_shut = False
        self._listener = socket.create_server(("127.0.0.1", own_port))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.shut()
        self._listener.close()

    def shut(self) -> None:
        """Cut every connection, and let none through from now on."""
        with self._lock:
            self._is_shut = True
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._open.clear()

    def open(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._is_shut = False

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_shut:
                    inside.close()
                    continue
                outside = socket.create_connection(self._server)
                self._open += [inside, outside]
            for pair in ((inside, outside), (outside, inside)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
