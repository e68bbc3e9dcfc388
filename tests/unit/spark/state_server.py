"""Spark's state server as its protocol describes it, in memory: framed requests for one map state, answered in order."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark.serializers import CPickleSerializer
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor import MapState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

USER = StructType([StructField("user", StringType())])
_PICKLE: Any = CPickleSerializer()
STATE = StructType([StructField("state", BinaryType())])


class StateServer:
    """Serves one connection. `requests`: the encoded requests in order of arrival.

    `hold`: answers nothing before so many requests have arrived. `fail_at`: the number of the request that is refused, after which
    the server closes the connection, as Spark's does.
    """

    def __init__(self, directory: Path, *, hold: int = 0, fail_at: int | None = None) -> None:
        self.requests: list[bytes] = []
        self.entries: dict[str, bytes] = {}
        self._hold, self._fail_at = hold, fail_at
        self._path = str(directory / "state.sock")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._path)
        self._listening.listen(1)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        self._client: Any = StatefulProcessorApiClient(self._path, StructType())
        return self

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # a request that the server does not take any more
            self._client.sockfile.close()
        self._client._client_socket.close()
        self._thread.join()
        self._listening.close()

    def state(self) -> MapState:
        """Return the map state `users` of PySpark's own client, connected to this server."""
        return MapState(MapStateClient(self._client, USER, STATE), "users")

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        unanswered: list[bytes] = []
        with connection, connection.makefile("rwb") as stream:
            while header := stream.read(8):
                version, length = struct.unpack("!ii", header)
                assert version == 0
                self.requests.append(stream.read(length))
                unanswered.append(self.requests[-1])
                if len(self.requests) < self._hold:
                    continue
                for request in unanswered:
                    is_refused = len(self.requests) - 1 == self._fail_at
                    answer = messages.StateResponse(statusCode=1, errorMessage="disk full") if is_refused else self._answer(request)
                    encoded = answer.SerializeToString()
                    stream.write(struct.pack("!i", len(encoded)) + encoded)
                    stream.flush()
                    if is_refused:
                        return
                unanswered.clear()

    def _answer(self, request: bytes) -> Any:
        call = messages.StateRequest.FromString(request).stateVariableRequest.mapStateCall
        assert call.stateName == "users"
        match call.WhichOneof("method"):
            case "getValue":
                found = self.entries.get(_PICKLE.loads(call.getValue.userKey)[0])
                return messages.StateResponse(value=b"" if found is None else _PICKLE.dumps((bytearray(found),)))
            case "updateValue":
                self.entries[_PICKLE.loads(call.updateValue.userKey)[0]] = _PICKLE.loads(call.updateValue.value)[0]
            case "removeKey":
                self.entries.pop(_PICKLE.loads(call.removeKey.userKey)[0], None)
            case method:
                raise ValueError(method)
        return messages.StateResponse()
