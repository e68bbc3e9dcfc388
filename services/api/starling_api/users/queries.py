"""Core: the queries on the read models. Every response states the stream time that it reflects."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starling_api.campaigns.broadcasts import shown_broadcast
from starling_api.definitions.definition import ACTIVE, BOOTSTRAPPING, USES, Definition, plain_status, segment_status, users_of
from starling_api.definitions.event_types import readers_of
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.kinds import CAMPAIGNS, EVENT_TYPES, SEGMENTS, TRAITS
from starling_api.definitions.statements import is_sql
from starling_api.http.errors import HistoryOff, NotFound
from starling_api.http.pagination import PageOf, cut
from starling_api.ports import AudienceReader, ComputedProgress, DefinitionReader, EventRow, ReportedProgress
from starling_common.cassandra.read_models import ARCHIVED
from starling_common.time.instants import format_instant
from starling_messages.broadcast_progress import Written

Document = dict[str, Any]

_END_OF_TIME: Final = 2**62
"""An instant later than any event."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter and order of a list of definitions. None: no restriction. `name`: part of the name, case-insensitive."""

    status: str | None = None
    tag: str | None = None
    name: str | None = None
    owner: str | None = None
    archived: bool = False
    sort: str = "key"

    def passes(self, document: Document) -> bool:
        """Return whether the definition passes the filter."""
        status, name = document["status"], str(document.get("name", ""))
        return (
            (status == self.status if self.status is not None else self.archived or status != ARCHIVED)
            and (self.tag is None or self.tag in (document.get("tags") or ()))
            and (self.owner is None or self.owner == document.get("owner"))
            and (self.name is None or self.name.casefold() in name.casefold())
        )


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries. `partitions`: number of segmenter partitions. Every query may raise DatabaseUnavailable."""

    reader: DefinitionReader
    audience: AudienceReader
    partitions: int
    backfill_of: Callable[[str, str, int], Document | None] = lambda _workspace, _key, _version: None
    """Returns the progress of the backfill of a segment's version (workspace, key, version); None without a backfill."""
    history_days: int = 30
    """Lifetime of the events of users in the read model."""
    computed: Callable[[], ComputedProgress | None] = lambda: None
    """Returns how far the job of computed traits is; None if it is unknown."""
    broadcasts_of: Callable[[str, Sequence[str]], Mapping[str, Written] | None] = lambda _workspace, _keys: None
    """Returns how far the broadcasts of campaigns (workspace, keys) are written; None if that is not known."""
    sql_runs: Mapping[str, Callable[[str, Sequence[Definition]], Mapping[str, Document]]] = field(default_factory=dict)
    """Kind -> function that returns by key the fields that runs of SQL add to the documents (workspace, definitions)."""

    def definition(self, kind: Kind, workspace: str, key: str) -> tuple[Definition, Document]:
        """Return a definition and its response document, also of an archived one. Raises: NotFound."""
        progress, computed = self.audience.progress(), self.computed() if kind is TRAITS else None
        found = self.reader.definition(workspace, kind.name, key)
        if found is None:
            raise NotFound(kind.title, key)
        document = _with_status(kind, workspace, found, progress, self.partitions, computed)
        if kind.name in USES:
            document["used_by"] = users_of(kind.name, key, self.reader.definitions(workspace, SEGMENTS.name))
        if kind is EVENT_TYPES:
            document["used_by"] = readers_of(self.reader, workspace, key)
        if document["status"] == "backfilling" and (backfill := self.backfill_of(workspace, key, found.version)) is not None:
            document["backfill"] = backfill
        if computed is not None and document["status"] == BOOTSTRAPPING:
            document["progress"] = _percent(computed)
        if kind is CAMPAIGNS:
            document = self._with_broadcasts(workspace, [document])[0]
        is_computed = kind is TRAITS and not is_sql(found.document)
        as_of = _as_of_values(computed) if is_computed else _as_of(progress)
        return found, document | self._runs(kind, workspace, [found]).get(key, {}) | {"as_of": as_of}

    def definitions(self, kind: Kind, workspace: str, page: PageOf, wanted: Filter) -> Document:
        """Return a page of the definitions that pass the filter. Segments include their sizes. Raises: BadRequest."""
        name = f"{kind.name} {wanted.sort}"
        field, descending = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
        progress, computed = self.audience.progress(), self.computed() if kind is TRAITS else None
        stored = self.reader.definitions(workspace, kind.name)
        runs = self._runs(kind, workspace, stored)
        documents = [
            _with_status(kind, workspace, one, progress, self.partitions, computed) | runs.get(one.key, {}) for one in stored
        ]
        positions = {one["key"]: (str(one.get(field, "")), str(one["key"])) for one in documents if wanted.passes(one)}
        if page.cursor is not None:
            after = page.after(name, ("", ""))
            positions = {key: at for key, at in positions.items() if (at < after if descending else at > after)}
        matching = (one for one in documents if one["key"] in positions)
        found = sorted(matching, key=lambda one: positions[one["key"]], reverse=descending)
        rows, cursor = cut(found[: page.limit + 1], page.limit, name, lambda one: positions[one["key"]])
        if kind is SEGMENTS:
            sizes = self.audience.sizes(workspace, [one["key"] for one in rows])
            rows = [{**one, "size": size} for one, size in zip(rows, sizes, strict=True)]
        if kind is CAMPAIGNS:
            rows = self._with_broadcasts(workspace, rows)
        return _page(list(rows), cursor, progress)

    def _with_broadcasts(self, workspace: str, campaigns: Sequence[Document]) -> list[Document]:
        """Return the campaigns; the broadcasts with how far each is written, which is read once for all of them."""
        keys = [one["key"] for one in campaigns if "broadcast" in one.get("trigger", {})]
        written = self.broadcasts_of(workspace, keys) if keys else None

        def shown(campaign: Document) -> Document | None:
            return None if written is None else shown_broadcast(written[campaign["key"]], campaign["status"])

        return [{**one, "broadcast": shown(one)} if one["key"] in keys else one for one in campaigns]

    def document(self, kind: Kind, workspace: str, definition: Definition) -> Document:
        """Return the response document of a definition: with the read-only fields, without the secret."""
        progress = self.audience.progress() if kind is SEGMENTS else {}
        computed = self.computed() if kind is TRAITS else None
        document = _with_status(kind, workspace, definition, progress, self.partitions, computed)
        return document | self._runs(kind, workspace, [definition]).get(definition.key, {})

    def _runs(self, kind: Kind, workspace: str, definitions: Sequence[Definition]) -> Mapping[str, Document]:
        return self.sql_runs[kind.name](workspace, definitions) if kind.name in self.sql_runs else {}

    def versions(self, kind: Kind, workspace: str, key: str, page: PageOf) -> Document:
        """Return a page of the changes of a definition, the oldest first. Raises: NotFound, BadRequest."""
        self._must_exist(kind, workspace, key)
        name = f"versions of {key}"
        version, recorded_at = page.after(name, (0, 0), bits=(32, 64))
        found = self.audience.versions(workspace, kind.name, key, (version, recorded_at), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda one: (one.version, one.recorded_at_micros))
        items = [
            {
                "version": one.version,
                "revision": one.recorded_at_micros,
                "action": one.action,
                "actor": one.actor,
                "recorded_at": _instant(one.recorded_at_micros),
                "document": _public(kind, one.document),
            }
            for one in rows
        ]
        return _page(items, cursor, self.audience.progress())

    def members(self, workspace: str, key: str, page: PageOf) -> Document:
        """Return a page of members. Raises: NotFound, BadRequest."""
        self._must_exist(SEGMENTS, workspace, key)
        name = f"members of {key}"
        bucket, user = page.after(name, (0, ""), bits=(32,))
        # Read before the rows, so that the rows are at least as new as `as_of`.
        progress = self.audience.progress()
        found = self.audience.members(workspace, key, (bucket, user), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda row: (row.bucket, row.user_id))
        items = [
            {"user_id": row.user_id, "entered_at": format_instant(row.entered_at_ms), "sequence": row.sequence} for row in rows
        ]
        return _page(items, cursor, progress)

    def size(self, workspace: str, key: str) -> Document:
        """Return the number of members, entries and exits. Raises: NotFound."""
        self._must_exist(SEGMENTS, workspace, key)
        as_of = _as_of(self.audience.progress())
        entered, exited = self.audience.counts(workspace, key)
        return {"key": key, "size": entered - exited, "entered": entered, "exited": exited, "as_of": as_of}

    def history(self, workspace: str, key: str, page: PageOf) -> Document:
        """Return a page of the days (UTC) with entries or exits, with the size at their end. Raises: NotFound, BadRequest."""
        self._must_exist(SEGMENTS, workspace, key)
        name = f"history of {key}"
        (after,) = page.after(name, (-(2**53),))
        progress = self.audience.progress()
        days, size = [], 0
        for day in self.audience.days(workspace, key):
            size += day.entered - day.exited
            days.append((day, size))
        rows, cursor = cut(
            [one for one in days if one[0].day > after][: page.limit + 1], page.limit, name, lambda one: (one[0].day,)
        )
        items = [
            {"day": _date(day.day), "entered": day.entered, "exited": day.exited, "size": size_then} for day, size_then in rows
        ]
        return _page(items, cursor, progress)

    def profile(self, workspace: str, user_id: str) -> Document:
        """Return the profile of a user. Raises: NotFound."""
        as_of = _as_of(self.audience.progress())
        found = self.audience.profile(workspace, user_id)
        if found is None:
            raise NotFound("user", user_id)
        return {
            "user_id": found.user_id,
            "anonymous_ids": list(found.anonymous_ids),
            "traits": found.traits,
            "group_id": found.group_id,
            "updated_at": format_instant(found.updated_at_ms),
            "as_of": as_of,
        }

    def memberships(self, workspace: str, user_id: str, page: PageOf) -> Document:
        """Return a page of the segments of a user. Raises: BadRequest."""
        name = f"segments of {user_id}"
        (after,) = page.after(name, ("",))
        progress = self.audience.progress()
        (found,) = self.audience.memberships(workspace, [user_id])
        rows, cursor = cut([one for one in found if one.segment_key > after], page.limit, name, lambda one: (one.segment_key,))
        items = [
            {
                "segment": one.segment_key,
                "version": one.segment_version,
                "entered_at": format_instant(one.entered_at_ms),
                "sequence": one.sequence,
            }
            for one in rows
        ]
        return _page(items, cursor, progress)

    def events(self, workspace: str, user_id: str, page: PageOf) -> Document:
        """Return a page of the events and delivery outcomes of a user, the newest first. Raises: BadRequest, HistoryOff."""
        if not self.history_days:
            raise HistoryOff("this installation stores no events of users: query the lake, or set STARLING_HISTORY_DAYS")
        name = f"events of {user_id}"
        time, event_id = page.after(name, (_END_OF_TIME, ""))
        progress = self.audience.progress()
        found = self.audience.events(workspace, user_id, (time, event_id), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda row: (row.event_time_ms, row.event_id))
        return _page([_event(row) for row in rows], cursor, progress)

    def all_events(self, workspace: str, user_id: str) -> Iterator[Document]:
        """Return a lazy iterator over all stored events of a user, the newest first."""
        position, most = (_END_OF_TIME, ""), 1000
        while True:
            rows = self.audience.events(workspace, user_id, position, most)
            yield from map(_event, rows)
            if len(rows) < most:
                return
            position = rows[-1].event_time_ms, rows[-1].event_id

    def is_stopped(self, workspace: str, key: str) -> bool:
        """Return whether no segmenter partition evaluates the segment, according to the read models."""
        name = f"{workspace}/{key}"
        return all(name not in one.definitions for one in self.audience.progress().values())

    def as_of(self) -> str | None:
        """Return the stream time that the read models of every partition have reached; None before the first event."""
        return _as_of(self.audience.progress())

    def lookup(self, workspace: str, users: Sequence[str], segments: Sequence[str] | None) -> Document:
        """Return for each user the memberships among `segments` (None: all segments)."""
        as_of = _as_of(self.audience.progress())
        wanted = None if segments is None else set(segments)
        found = self.audience.memberships(workspace, users)
        memberships = {
            user: [one.segment_key for one in their if wanted is None or one.segment_key in wanted]
            for user, their in zip(users, found, strict=True)
        }
        return {"memberships": memberships, "as_of": as_of}

    def _must_exist(self, kind: Kind, workspace: str, key: str) -> None:
        if self.reader.definition(workspace, kind.name, key) is None:
            raise NotFound(kind.title, key)


def _event(row: EventRow) -> Document:
    return {
        "event_id": row.event_id,
        "kind": row.kind,
        "name": row.name,
        "time": format_instant(row.event_time_ms),
        "received_at": _instant(row.received_at_micros),
        "message_id": row.message_id,
        **row.details,
        "correlation_id": row.correlation_id,
    }


def _with_status(
    kind: Kind,
    workspace: str,
    definition: Definition,
    progress: Mapping[int, ReportedProgress],
    partitions: int,
    computed: ComputedProgress | None,
) -> Document:
    if kind is SEGMENTS:
        name = f"{workspace}/{definition.key}"
        status = segment_status(definition, {part: one.definitions.get(name) for part, one in progress.items()}, partitions)
    else:
        status = plain_status(definition)
        if status == ACTIVE and computed is not None and _is_pending(definition, computed) and not is_sql(definition.document):
            status = BOOTSTRAPPING
    return {
        **_public(kind, definition.document),
        "version": definition.version,
        "revision": definition.revision,
        "status": status,
        "created_at": _instant(definition.created_at_micros),
        "updated_at": _instant(definition.recorded_at_micros),
    }


def _is_pending(trait: Definition, computed: ComputedProgress) -> bool:
    return trait.recorded_at_micros >= computed.pending_since_micros


def _percent(computed: ComputedProgress) -> Document:
    """Return the progress of the job over its inputs."""
    share = 1.0 if computed.records_total == 0 else computed.records_done / computed.records_total
    return {
        "percent": round(100 * share, 1),
        "records_done": computed.records_done,
        "records_total": computed.records_total,
    }


def _public(kind: Kind, document: Mapping[str, Any]) -> Document:
    return kind.shown(document)


def _page(items: list[Document], cursor: str | None, progress: Mapping[int, ReportedProgress]) -> Document:
    return {"items": items, "next_cursor": cursor, "as_of": _as_of(progress)}


def _as_of(progress: Mapping[int, ReportedProgress]) -> str | None:
    """Return the lowest stream time of the partitions. A partition without a stream time has no data and does not count."""
    times = [one.stream_time_ms for one in progress.values() if one.stream_time_ms > 0]
    return format_instant(min(times)) if times else None


def _as_of_values(computed: ComputedProgress | None) -> str | None:
    """Return the stream time up to which values of computed traits are published."""
    return None if computed is None or computed.as_of_ms is None else format_instant(computed.as_of_ms)


def _instant(micros: int) -> str:
    return format_instant(micros // 1000)


def _date(day: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
