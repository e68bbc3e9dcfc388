"""Core: the export of all data of one user, from the read models, the lists and the segmenter's state."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from starling_api.http.errors import NotFound
from starling_api.lists.lists import ListStore
from starling_api.ports import PastMembership, StateReader
from starling_api.users.queries import Queries
from starling_common.cassandra.read_models import LIST
from starling_common.time.instants import format_instant
from starling_segments import UserState, decode_state

Document = dict[str, Any]


@dataclass(frozen=True)
class Exports:
    """Builds exports. May raise the `…Unavailable` error of a store, and can then be repeated."""

    queries: Queries
    lists: ListStore
    states: StateReader

    def export(self, workspace: str, user_id: str) -> tuple[Document, Iterator[Document]]:
        """Return the export without events, and a lazy iterator over the events. Raises: NotFound."""
        as_of = self.queries.as_of()
        reader = self.queries.reader
        keys = [one.key for one in reader.definitions(workspace, LIST)]
        segments = self.queries.audience.past_memberships(workspace, user_id)
        document: Document = {
            "user_id": user_id,
            "as_of": as_of,
            "profile": self._profile(workspace, user_id),
            "segments": [_membership(one) for one in segments],
            "lists": self.lists.holding(workspace, keys, user_id),
            "state": self._state(workspace, user_id),
        }
        events = self.queries.all_events(workspace, user_id)
        first = next(events, None)
        if first is None and document["profile"] is None and document["state"] is None and not segments and not document["lists"]:
            raise NotFound("user", user_id)
        return document, _from(first, events)

    def _profile(self, workspace: str, user_id: str) -> Document | None:
        try:
            return self.queries.profile(workspace, user_id)
        except NotFound:
            return None

    def _state(self, workspace: str, user_id: str) -> Document | None:
        snapshot = self.states.partition_of(workspace, user_id)
        found = {} if snapshot is None else snapshot.some(workspace, [user_id])
        return _readable(decode_state(found[user_id][1])) if user_id in found else None


def _from(first: Document | None, rest: Iterator[Document]) -> Iterator[Document]:
    if first is not None:
        yield first
        yield from rest


def _membership(one: PastMembership) -> Document:
    return {
        "segment": one.segment_key,
        "version": one.segment_version,
        "status": one.status,
        "effective_at": format_instant(one.effective_at_ms),
        "sequence": one.sequence,
    }


def _readable(state: UserState) -> Document:
    """Return a state as JSON. Units: instants in epoch ms. Shape: `kept` maps a leaf node's identity to its accumulator."""
    fields: Document = {
        "clock": state.clock,
        "traits": state.traits,
        "anonymous_ids": state.anonymous_ids,
        "lists": state.lists,
        "memberships": {key: one.member for key, one in state.memberships.items()},
        "kept": state.accumulators.by_leaf(),
        "waiting": state.waiting,
        "account": state.account,
    }
    plain: Document = msgspec.to_builtins(fields, str_keys=True)
    return plain
