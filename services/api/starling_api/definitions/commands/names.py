"""Core: the definitions to which another one may refer, and those that refer to one."""

from starling_api.definitions.definition import USES, used_segments, users_of
from starling_api.definitions.event_types import event_types_in, readers_of, statements_in
from starling_api.definitions.kinds.kind import Kind, Names
from starling_api.definitions.kinds.kinds import CAMPAIGNS, EVENT_TYPES, LISTS, SEGMENTS, TARGETS, TRAITS, VIEWS
from starling_api.ports import DefinitionReader
from starling_common.cassandra.read_models import ARCHIVED
from starling_segments import CostLimits


def names_for(
    reader: DefinitionReader, workspace: str, kind: Kind, except_key: str | None, *, timezone: str, limits: CostLimits | None
) -> Names:
    """Return the names to which a definition of the kind may refer. `except_key`: its own key, None for a new definition.

    `timezone`: the default of the workspace; `limits`: of a segment, None: unlimited.
    """
    own = reader.definitions(workspace, kind.name)
    segments = own if kind is SEGMENTS else reader.definitions(workspace, SEGMENTS.name)
    traits = own if kind is TRAITS else reader.definitions(workspace, TRAITS.name)
    lists = own if kind is LISTS else reader.definitions(workspace, LISTS.name)
    targets = reader.definitions(workspace, TARGETS.name) if kind is CAMPAIGNS else ()
    reads_tables = kind in {TRAITS, VIEWS, EVENT_TYPES}
    event_types = reader.definitions(workspace, EVENT_TYPES.name) if reads_tables else ()
    views = reader.definitions(workspace, VIEWS.name) if kind is EVENT_TYPES else ()
    return Names(
        segments={one.key: used_segments(one.document) for one in segments if one.status != ARCHIVED},
        computed_traits=frozenset(one.key for one in traits if one.status != ARCHIVED),
        taken_keys=frozenset(one.key for one in own if one.key != except_key),
        lists=frozenset(one.key for one in lists if one.status != ARCHIVED),
        accounts=True,
        timezone=timezone,
        limits=limits,
        targets={one.key: str(one.document.get("channel")) for one in targets if one.status != ARCHIVED},
        archived_segments=frozenset(one.key for one in segments if one.status == ARCHIVED),
        archived_targets=frozenset(one.key for one in targets if one.status == ARCHIVED),
        event_types=event_types_in(event_types),
        statements=statements_in([*traits, *views]) if kind is EVENT_TYPES else (),
    )


def users_in(reader: DefinitionReader, workspace: str, kind: Kind, key: str) -> list[str]:
    """Return the keys of the definitions that use one."""
    if kind is TARGETS:
        campaigns = reader.definitions(workspace, CAMPAIGNS.name)
        return [one.key for one in campaigns if one.status != ARCHIVED and one.document.get("target") == key]
    if kind is EVENT_TYPES:
        return readers_of(reader, workspace, key)
    if kind.name not in USES:
        return []
    return users_of(kind.name, key, reader.definitions(workspace, SEGMENTS.name))
