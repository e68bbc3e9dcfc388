"""Pure core: the examples of the operations on segments and lists."""

from typing import Final

from starling_api.http.openapi.examples.example import (
    INSTANT,
    REVISION,
    SERVER,
    WHERE,
    Document,
    Example,
    definition_examples,
    page,
)

_SEGMENT_BODY: Final[Document] = {"key": "repeat-buyers", "name": "Repeat buyers", "where": WHERE}
_SEGMENT: Final[Document] = {**_SEGMENT_BODY, "description": "", "timezone": "UTC", **SERVER}
_LIST: Final[Document] = {"key": "fair-2026", "name": "Spring fair 2026", "description": "", **SERVER}
_USERS: Final[Document] = {"users": ["ada", "grace"]}
_UPLOAD: Final[Document] = {"key": "fair-2026", "users": 2}
_CONDITION: Final[Document] = {"where": WHERE}
_ESTIMATE: Final[Document] = {"estimate": 2, "low": 2, "high": 2, "sample": ["ada", "grace"]}
_NO_USERS: Final[Document] = {"estimate": 0, "low": 0, "high": 0, "sample": []}
_EVALUATION: Final[Document] = {"exact": True, "users": 120, "asked": 120, "limits": [], "as_of": INSTANT, "took_ms": 12}

EXAMPLES: Final[dict[str, Example]] = {
    **definition_examples("segment", "segments", (_SEGMENT_BODY, {**_SEGMENT_BODY, "name": "Loyal buyers"}), _SEGMENT),
    "apply_segments": Example({"segments": [_SEGMENT_BODY]}, {"items": [_SEGMENT]}),
    "pause_segment": Example(None, {**_SEGMENT, "status": "paused"}),
    "resume_segment": Example(None, {**_SEGMENT, "status": "backfilling"}),
    "list_segment_versions": Example(
        None,
        page({
            "version": 1, "revision": REVISION, "action": "DEFINED", "actor": "marketer-1f2e3d4c", "recorded_at": INSTANT,
            "document": _SEGMENT_BODY,
        }),
    ),
    "list_segment_members": Example(None, page({"user_id": "ada", "entered_at": INSTANT, "sequence": 1})),
    "get_segment_size": Example(None, {"key": "repeat-buyers", "size": 2, "entered": 3, "exited": 1, "as_of": INSTANT}),
    "get_segment_history": Example(None, page({"day": "2026-03-01", "entered": 3, "exited": 1, "size": 2})),
    "preview_segment": Example(_CONDITION, {**_ESTIMATE, **_EVALUATION}),
    "diff_segment": Example(
        _CONDITION, {"key": "repeat-buyers", "enter": _ESTIMATE, "leave": _NO_USERS, "stay": _ESTIMATE, **_EVALUATION}
    ),
    "list_lists": Example(None, page(_LIST)),
    "get_list": Example(None, {**_LIST, "used_by": [], "as_of": INSTANT}),
    "put_list": Example({"name": "Spring fair 2026"}, _LIST),
    "list_list_members": Example(None, page({"user_id": "ada"})),
    "replace_list_members": Example(_USERS, _UPLOAD),
    "add_list_members": Example(_USERS, _UPLOAD),
    "remove_list_members": Example(_USERS, _UPLOAD),
}  # fmt: skip
