"""Pure core: the fields that documents of several kinds share, and their errors."""

import re
from collections.abc import Mapping
from typing import Any, Final

from starling_api.definitions.kinds.kind import Document
from starling_segments import DefinitionRefused, FieldError, Known
from starling_segments.language.validation import Location, Validation
from starling_segments.parse.document import KEY_PATTERN, MAX_NAME_CHARACTERS, description_errors, read_labels

READ_ONLY: Final = frozenset({
    "version", "revision", "status", "created_at", "updated_at", "used_by", "as_of", "size", "backfill", "progress", "broadcast",
    "last_run", "next_run_at", "disabled", "disabled_because", "previous_secret_expires_at",
})  # fmt: skip
"""Response fields that only the server writes. They are removed from a body after `refuse_read_only` has compared them."""

_KEY = re.compile(KEY_PATTERN[:-1] + r"\Z")


def writable(document: object) -> Any:
    """Return a document without the fields that only the server writes; what is no object, as it is."""
    if not isinstance(document, Mapping):
        return document
    return {field: value for field, value in document.items() if field not in READ_ONLY}


def object_of(document: object) -> Document:
    """Return an object without the fields that only the server writes. Raises: DefinitionRefused."""
    given = writable(document)
    if not isinstance(given, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", "a JSON object"),))
    return given


def key_errors(given: Document, known: Known) -> tuple[FieldError, ...]:
    """Return the errors of the key, which has to be a new one."""
    key = given.get("key")
    if key is None:
        return (FieldError("", "missing_field", "it has no key", f'"key": {KEY_PATTERN}'),)
    if not isinstance(key, str) or not _KEY.match(key):
        return (FieldError("/key", "bad_key", "it is not a key", KEY_PATTERN),)
    if key in known.taken_keys:
        return (FieldError("/key", "key_taken", f"{key!r} is or was in use", "a key never used before"),)
    return ()


def described(given: Document) -> Document:
    """Return the description, if it has one."""
    return {"description": given["description"]} if given.get("description") else {}


def labels_of(given: Document) -> Document:
    """Return the non-empty tags and owner."""
    return {field: given[field] for field in ("tags", "owner") if given.get(field)}


def label_errors(given: Document) -> tuple[FieldError, ...]:
    """Return the errors of the tags and the owner."""
    reading = Validation(Known())
    read_labels(given, Location(reading))
    return tuple(reading.errors)


def unknown_field_errors(given: Document, title: str, allowed: frozenset[str]) -> tuple[FieldError, ...]:
    """Return an error for each field that is not allowed. `title`: of the kind."""
    expected = "one of " + ", ".join(sorted(allowed))
    return tuple(
        FieldError(f"/{_escaped(field)}", "unknown_field", f"{field!r} is not a field of a {title}", expected)
        for field in given
        if field not in allowed
    )


def name_errors(given: Document) -> tuple[FieldError, ...]:
    """Return the errors of the name, which may be missing."""
    name = given.get("name")
    if name is None or (isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS):
        return ()
    return (FieldError("/name", "wrong_type", "it is not a name", f"text of 1 to {MAX_NAME_CHARACTERS} characters"),)


def text_errors(given: Document) -> tuple[FieldError, ...]:
    """Return the errors of the description, which may be missing."""
    description = given.get("description")
    if not isinstance(description, str | None):
        return (FieldError("/description", "wrong_type", "it is not a text", "a text, or null"),)
    return () if description is None else description_errors(description)


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def finish(errors: tuple[FieldError, ...]) -> None:
    """Raise DefinitionRefused with the errors, if there are any."""
    if errors:
        raise DefinitionRefused(errors)
