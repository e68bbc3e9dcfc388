"""Adapter: what the messenger keeps of a person, by the state query of the stream layer."""

from typing import NamedTuple, Protocol

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.partitioning import partition_of
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_messages.state import PersonState, decode_person
from starling_stream.inspect.state_query import StateQuery
from starling_stream.model.backing_store import BackingStoreUnavailable

_STAGE = "messenger"


class KnownPerson(NamedTuple):
    """The state of a person, and the messenger's stream time there. `as_of_ms`: epoch ms; -1 before the first event."""

    state: PersonState
    as_of_ms: int


class People(Protocol):
    """Reads what the messenger keeps of people."""

    def person(self, workspace: str, user_id: str) -> KnownPerson | None:
        """Return a person, with an empty state if unknown; None if no messenger has stored a state.

        Raises: DatabaseUnavailable, BrokerUnavailable.
        """


class MessengerPeople:
    """Reads the states of the messenger from Cassandra and from its changelog."""

    def __init__(self, database: Database, brokers: str, registry: Registry) -> None:
        """Connect at the first query."""
        self._states = StateQuery(_STAGE, database, brokers, registry)

    def person(self, workspace: str, user_id: str) -> KnownPerson | None:
        """As `People.person`."""
        key = record_key(workspace, user_id)
        try:
            found = self._states.snapshot(key)
            if found is None:
                return None
            state = found.states_of([key]).get(key)
        except BackingStoreUnavailable as cause:
            raise DatabaseUnavailable(str(cause)) from cause
        stream_time_ms = found.partitions[partition_of(key, found.partition_count)].meta.stream_time_ms
        return KnownPerson(PersonState() if state is None else decode_person(state), stream_time_ms)

    def close(self) -> None:
        """Close the connections."""
        self._states.close()
