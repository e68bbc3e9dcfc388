"""Adapter: what the messenger keeps of a person, by the state query of the stream layer."""

from collections.abc import Mapping, Sequence
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

    def people(self, workspace: str, users: Sequence[str]) -> Mapping[str, KnownPerson] | None:
        """Return each of the users, as `person`; None if no messenger has stored a state.

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
        found = self._read([key], key)
        return None if found is None else found[key]

    def people(self, workspace: str, users: Sequence[str]) -> Mapping[str, KnownPerson] | None:
        """As `People.people`."""
        keys = {record_key(workspace, user): user for user in users}
        found = self._read(list(keys), None)
        return None if found is None else {keys[key]: person for key, person in found.items()}

    def _read(self, keys: Sequence[bytes], of_partition: bytes | None) -> dict[bytes, KnownPerson] | None:
        """Return the people of the keys. `of_partition`: a key whose partition has all of them; None: they are in any partition."""
        try:
            found = self._states.snapshot(of_partition)
            if found is None:
                return None
            states = found.states_of(keys)
        except BackingStoreUnavailable as cause:
            raise DatabaseUnavailable(str(cause)) from cause
        people = {}
        for key in keys:
            stream_time_ms = found.partitions[partition_of(key, found.partition_count)].meta.stream_time_ms
            people[key] = KnownPerson(decode_person(states[key]) if key in states else PersonState(), stream_time_ms)
        return people

    def close(self) -> None:
        """Close the connections."""
        self._states.close()
