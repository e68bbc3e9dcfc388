"""Adapter: reads and writes many entries of a map state at once, by pipelined requests to Spark's state server.

With the public API each read and each write waits for its answer from the JVM. The state server reads requests from a buffered
stream and answers them in order, so up to `OUTSTANDING` requests are sent before the first answer is read. This uses the internal
client of PySpark 4.1. `tests/unit/spark/test_spark_bulk_states.py` fails when PySpark changes it, and `bulk_states` then returns
the public API.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from struct import Struct
from typing import Any, Final, Protocol

import structlog
from pyspark.sql.streaming.stateful_processor import MapState

from starling_common.failures import InstallationFailure

OUTSTANDING: Final = 64
"""Maximum number of requests without an answer."""

_HALF: Final = OUTSTANDING // 2
_REQUEST: Final = Struct("!ii")
"""The version of the protocol, which is 0, and the length of the message that follows."""
_ANSWER: Final = Struct("!i")
_log = structlog.get_logger(__name__)


class StateServerFailed(InstallationFailure):
    """The state server refused a request or closed the connection. The task cannot continue: answers are outstanding."""


class BulkStates(Protocol):
    """The entries of a map state of the current grouping key: text -> bytes. The state has one column on each side."""

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the value of each key; None without one."""

    def write(self, states: Mapping[str, bytes | None]) -> None:
        """Store the values; None deletes the entry."""


class PublicStates:
    """`BulkStates` by the public API: one round trip for each entry."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the value of each key; None without one."""
        found = [self._state.getValue((key,)) for key in keys]
        return [None if one is None else bytes(one[0]) for one in found]

    def write(self, states: Mapping[str, bytes | None]) -> None:
        """Store the values; None deletes the entry."""
        for key, state in states.items():
            if state is None:
                self._state.removeKey((key,))
            else:
                self._state.updateValue((key,), (state,))


class PipelinedStates:
    """`BulkStates` by pipelined requests.

    Neither side can block the other: requests to read, and answers to writes, are small enough for the buffer of the socket, and
    a call returns after its last answer.
    """

    def __init__(self, state: MapState) -> None:
        """Raises: AttributeError, ImportError, TypeError or ValueError if PySpark's internal client is not the expected one."""
        from pyspark.serializers import pickle_protocol  # noqa: PLC0415 - internal
        from pyspark.sql.streaming.proto import StateMessage_pb2 as messages  # noqa: PLC0415 - as PySpark: a slow import

        client: Any = state._mapStateClient  # noqa: SLF001 - the public API cannot send without waiting
        connection = client._stateful_processor_api_client  # noqa: SLF001
        self._file = connection.sockfile
        # Hot: cloudpickle, which PySpark uses here, builds a pickler in Python for each value; the bytes of text are the same.
        self._dumps, self._loads = partial(pickle.dumps, protocol=pickle_protocol), connection.pickleSer.loads
        name = state._stateName  # noqa: SLF001
        # Hot: one message of each kind, filled again for each entry.
        self._get, self._update, self._remove = (messages.StateRequest() for _ in range(3))
        for request in (self._get, self._update, self._remove):
            request.stateVariableRequest.mapStateCall.stateName = name
        self._getting = self._get.stateVariableRequest.mapStateCall.getValue
        self._updating = self._update.stateVariableRequest.mapStateCall.updateValue
        self._removing = self._remove.stateVariableRequest.mapStateCall.removeKey
        self._answer = messages.StateResponse()

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the value of each key; None without one. Raises: StateServerFailed."""
        loads = self._loads
        return [bytes(loads(value)[0]) if value else None for value in self._exchanged(map(self._to_read, keys))]

    def write(self, states: Mapping[str, bytes | None]) -> None:
        """Store the values; None deletes the entry. Raises: StateServerFailed."""
        for _ in self._exchanged(self._to_write(key, state) for key, state in states.items()):
            pass

    def _to_read(self, key: str) -> bytes:
        self._getting.userKey = self._dumps((key,))
        return self._get.SerializeToString()

    def _to_write(self, key: str, state: bytes | None) -> bytes:
        if state is None:
            self._removing.userKey = self._dumps((key,))
            return self._remove.SerializeToString()
        self._updating.userKey, self._updating.value = self._dumps((key,)), self._dumps((state,))
        return self._update.SerializeToString()

    def _exchanged(self, requests: Iterable[bytes]) -> Iterator[bytes]:
        """Send the requests, and yield the value of each answer in order. The iterator must be exhausted."""
        left, outstanding, pack = iter(requests), 0, _REQUEST.pack
        while some := list(islice(left, _HALF)):
            self._file.write(b"".join([part for request in some for part in (pack(0, len(request)), request)]))
            self._file.flush()
            # The server works on these requests while the answers to the ones before are read.
            yield from self._answers(outstanding)
            outstanding = len(some)
        yield from self._answers(outstanding)

    def _answers(self, count: int) -> Iterator[bytes]:
        read, answer = self._file.read, self._answer
        for _ in range(count):
            header = read(_ANSWER.size)
            if len(header) < _ANSWER.size:
                raise StateServerFailed("the state server closed the connection: see the log of the executor")
            answer.ParseFromString(read(_ANSWER.unpack(header)[0]))
            if answer.statusCode:
                raise StateServerFailed(f"the state server answered {answer.statusCode}: {answer.errorMessage}")
            yield answer.value


def bulk_states(state: MapState) -> BulkStates:
    """Return pipelined access to a state; the public API if this version of PySpark has another internal client."""
    try:
        return PipelinedStates(state)
    except (AttributeError, ImportError, TypeError, ValueError) as cause:
        _log.warning("state_not_pipelined", reason=f"{type(cause).__name__}: {cause}")
        return PublicStates(state)
