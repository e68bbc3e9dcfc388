"""Pure core: what a requested document has to be beside the stored one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starling_api.definitions.definition import Change, is_same
from starling_api.definitions.kinds.kind import Document, Kind
from starling_api.http.errors import FrozenField
from starling_campaigns import frozen_errors, parse_stored_campaign
from starling_segments import DefinitionRefused, FieldError, Known, check_bounds


def read_document(kind: Kind, document: object, known: Known) -> Document:
    """Return the document to store. Its defaults are filled in, so it may be larger than the request.

    Raises: DefinitionRefused.
    """
    kept = kind.read(document, known)
    check_bounds(kept)
    return kept


def without_limits(known: Known, document: object, before: Change) -> Known:
    """Return the keys without limits for a document with the stored condition: a stored definition can always be renamed."""
    same = isinstance(document, Mapping) and "where" in before.document and is_same(document.get("where"), before.document["where"])
    return replace(known, limits=None) if same else known


def with_key(document: object, key: str) -> object:
    """Return the document with the key of the path. Raises: DefinitionRefused if the document has another key."""
    if not isinstance(document, Mapping):
        return document
    if document.get("key", key) != key:
        raise DefinitionRefused((FieldError("/key", "bad_key", "a key never changes", f"{key!r}, as in the path, or none"),))
    return {**document, "key": key}


def refuse_frozen(before: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Raise FrozenField if a change of an activated campaign touches what never changes."""
    if errors := frozen_errors(parse_stored_campaign(before), parse_stored_campaign(kept)):
        raise FrozenField(errors)
