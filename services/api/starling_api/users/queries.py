"""Core: the queries. Everything comes from the read models; every answer says which stream time it reflects."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starling_api.definitions.definition import USES, Definition, plain_status, segment_status, users_of
from starling_api.definitions.kinds import SEGMENTS, Kind
from starling_api.http.errors import NotFound
from starling_api.http.pagination import PageOf, cut
from starling_api.ports import AudienceReader, DefinitionReader, EventRow, Reported
from starling_common.instants import format_instant
from starling_common.read_models import ARCHIVED

Document = dict[str, Any]

_END_OF_TIME: Final = 2**62
"""Later than any instant that an event can have."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which definitions a list has, and in which order. None: all. `name` is a part of the name, in any case."""

    status: str | None = None
    tag: str | None = None
    name: str | None = None
    owner: str | None = None
    archived: bool = False
    sort: str = "key"

    def passes(self, shown: Document) -> bool:
        """Whether the list has this definition."""
        status, name = shown["status"], str(shown.get("name", ""))
        return (
            (status == self.status if self.status is not None else self.archived or status != ARCHIVED)
            and (self.tag is None or self.tag in (shown.get("tags") or ()))
            and (self.owner is None or self.owner == shown.get("owner"))
            and (self.name is None or self.name.casefold() in name.casefold())
        )


@dataclass(frozen=True, slots=True)
class Queries:
    """What one can ask. `partitions`: how many the segmenter has. Every query may raise DatabaseUnavailable."""

    reader: DefinitionReader
    audience: AudienceReader
    partitions: int
    backfill_of: Callable[[str, str, int], Document | None] = lambda _workspace, _key, _version: None
    """How far the backfill of a version of a segment (workspace, key, version) is, where one is under way."""

    def definition(self, kind: Kind, workspace: str, key: str) -> tuple[Definition, Document]:
        """Archived ones too. Raises: NotFound."""
        progress = self.audience.progress()
        found = self.reader.definition(workspace, kind.name, key)
        if found is None:
            raise NotFound(kind.title, key)
        shown = _shown(kind, workspace, found, progress, self.partitions)
        if kind.name in USES:
            shown["used_by"] = users_of(kind.name, key, self.reader.definitions(workspace, SEGMENTS.name))
        if shown["status"] == "backfilling" and (backfill := self.backfill_of(workspace, key, found.version)) is not None:
            shown["backfill"] = backfill
        return found, shown | {"as_of": _as_of(progress)}

    def definitions(self, kind: Kind, workspace: str, page: PageOf, wanted: Filter) -> Document:
        """A page of the definitions that pass the filter, in its order. Segments have their sizes. Raises: BadRequest."""
        name = f"{kind.name} {wanted.sort}"
        field, falling = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
        progress = self.audience.progress()
        shown = [_shown(kind, workspace, one, progress, self.partitions) for one in self.reader.definitions(workspace, kind.name)]
        places = {one["key"]: (str(one.get(field, "")), str(one["key"])) for one in shown if wanted.passes(one)}
        if page.cursor is not None:
            after = page.after(name, ("", ""))
            places = {key: place for key, place in places.items() if (place < after if falling else place > after)}
        found = sorted((one for one in shown if one["key"] in places), key=lambda one: places[one["key"]], reverse=falling)
        rows, cursor = cut(found[: page.limit + 1], page.limit, name, lambda one: places[one["key"]])
        if kind is SEGMENTS:
            sizes = self.audience.sizes(workspace, [one["key"] for one in rows])
            rows = [{**one, "size": size} for one, size in zip(rows, sizes, strict=True)]
        return _page(list(rows), cursor, progress)

    def shown(self, kind: Kind, workspace: str, definition: Definition) -> Document:
        """The document with what the server adds to it, and without its secret."""
        progress = self.audience.progress() if kind is SEGMENTS else {}
        return _shown(kind, workspace, definition, progress, self.partitions)

    def versions(self, kind: Kind, workspace: str, key: str, page: PageOf) -> Document:
        """Every change, the oldest first. Raises: NotFound, BadRequest."""
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
        """A page of members. Raises: NotFound, BadRequest."""
        self._must_exist(SEGMENTS, workspace, key)
        name = f"members of {key}"
        bucket, user = page.after(name, (0, ""), bits=(32,))
        # Before the rows: what they show is then at least as new as that.
        progress = self.audience.progress()
        found = self.audience.members(workspace, key, (bucket, user), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda row: (row.bucket, row.user_id))
        items = [
            {"user_id": row.user_id, "entered_at": format_instant(row.entered_at_ms), "sequence": row.sequence} for row in rows
        ]
        return _page(items, cursor, progress)

    def size(self, workspace: str, key: str) -> Document:
        """How many members there are now. Raises: NotFound."""
        self._must_exist(SEGMENTS, workspace, key)
        as_of = _as_of(self.audience.progress())
        entered, exited = self.audience.counts(workspace, key)
        return {"key": key, "size": entered - exited, "entered": entered, "exited": exited, "as_of": as_of}

    def history(self, workspace: str, key: str, page: PageOf) -> Document:
        """Days (UTC) on which somebody entered or left, and the size at their end. Raises: NotFound, BadRequest."""
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
        """What is known about a user. Raises: NotFound."""
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
        """The segments that a user is in. Raises: BadRequest."""
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
        """What a user did lately, and what became of messages to them, the newest first. Raises: BadRequest."""
        name = f"events of {user_id}"
        time, event_id = page.after(name, (_END_OF_TIME, ""))
        progress = self.audience.progress()
        found = self.audience.events(workspace, user_id, (time, event_id), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda row: (row.event_time_ms, row.event_id))
        return _page([_event(row) for row in rows], cursor, progress)

    def all_events(self, workspace: str, user_id: str) -> Iterator[Document]:
        """Everything that is kept of what a user did, the newest first, read as it is taken."""
        place, most = (_END_OF_TIME, ""), 1000
        while True:
            rows = self.audience.events(workspace, user_id, place, most)
            yield from map(_event, rows)
            if len(rows) < most:
                return
            place = rows[-1].event_time_ms, rows[-1].event_id

    def is_held(self, workspace: str, key: str) -> bool:
        """Whether no partition of the segmenter evaluates the segment, as far as the read models show it."""
        place = f"{workspace}/{key}"
        return all(place not in one.definitions for one in self.audience.progress().values())

    def as_of(self) -> str | None:
        """The stream time up to which every partition is shown."""
        return _as_of(self.audience.progress())

    def lookup(self, workspace: str, users: Sequence[str], segments: Sequence[str] | None) -> Document:
        """For each user which of the segments (None: of all) they are in."""
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


def _shown(kind: Kind, workspace: str, definition: Definition, progress: Mapping[int, Reported], partitions: int) -> Document:
    if kind is SEGMENTS:
        name = f"{workspace}/{definition.key}"
        status = segment_status(definition, {part: one.definitions.get(name) for part, one in progress.items()}, partitions)
    else:
        status = plain_status(definition)
    return {
        **_public(kind, definition.document),
        "version": definition.version,
        "revision": definition.revision,
        "status": status,
        "created_at": _instant(definition.created_at_micros),
        "updated_at": _instant(definition.recorded_at_micros),
    }


def _public(kind: Kind, document: Mapping[str, Any]) -> Document:
    return {field: value for field, value in document.items() if field != kind.hidden}


def _page(items: list[Document], cursor: str | None, progress: Mapping[int, Reported]) -> Document:
    return {"items": items, "next_cursor": cursor, "as_of": _as_of(progress)}


def _as_of(progress: Mapping[int, Reported]) -> str | None:
    """The stream time up to which every partition is shown; a partition that has no time yet has no data either."""
    times = [one.stream_time_ms for one in progress.values() if one.stream_time_ms > 0]
    return format_instant(min(times)) if times else None


def _instant(micros: int) -> str:
    return format_instant(micros // 1000)


def _date(day: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
