"""Pure core: the secrets of targets: masked in responses, and kept by a body that masks or omits them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starling_campaigns.definitions.targets.field import MASK, TargetField
from starling_campaigns.definitions.targets.table import CHANNEL_FIELDS, of_channel


def shown_target(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a target for a response: with masked secrets."""
    return _mapped(document, CHANNEL_FIELDS.get(str(document.get("channel")), {}), lambda _name, _value: MASK)


def secrets_of_target(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the path of each secret in the document of a target, such as `("dkim", "private_key")`."""
    return list(_secret_paths(document, CHANNEL_FIELDS.get(str(document.get("channel")), {})))


def _secret_paths(document: Mapping[str, Any], table: Mapping[str, TargetField]) -> Iterator[tuple[str, ...]]:
    for name, field in table.items():
        value = document.get(name)
        inner = _inner_of(field, value)
        if field.secret and value is not None:
            yield (name,)
        elif inner is not None:
            yield from ((name, *path) for path in _secret_paths(value or {}, inner))


def _inner_of(field: TargetField, value: object) -> Mapping[str, TargetField] | None:
    """Return the fields of a value that is an object; None for any other value."""
    if not isinstance(value, Mapping):
        return None
    return field.fields if field.each is None else dict.fromkeys(value, field.each)


def unmasked_target(document: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the document with the stored value of each masked or missing secret. Another channel or adapter keeps none.

    A null removes an optional secret. Of an object with names that the user chooses, only masked values are kept.
    """
    if before is None or document.get("channel") != before.get("channel"):
        return dict(document)
    selector = of_channel(str(before["channel"])).selector if before["channel"] in CHANNEL_FIELDS else None
    if selector is not None and document.get(selector) != before.get(selector):
        return dict(document)
    return _completed(document, before, CHANNEL_FIELDS.get(str(before.get("channel")), {}))


def _mapped(document: Mapping[str, Any], table: Mapping[str, TargetField], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    found = dict(document)
    for name, field in table.items():
        if found.get(name) is None:
            continue
        inner = _inner_of(field, found[name])
        if field.secret:
            found[name] = change(name, found[name])
        elif inner is not None:
            found[name] = _mapped(found[name], inner, change)
    return found


def _completed(document: Mapping[str, Any], before: Mapping[str, Any], table: Mapping[str, TargetField]) -> dict[str, Any]:
    found = dict(document)
    for name, field in table.items():
        stored = before.get(name)
        if stored is None:
            continue
        if field.secret and (name not in found or found[name] == MASK):
            found[name] = stored
        elif field.each is not None and isinstance(found.get(name), Mapping) and isinstance(stored, Mapping):
            masked = {inner: stored[inner] for inner, value in found[name].items() if value == MASK and inner in stored}
            found[name] = {**found[name], **masked}
        elif field.fields is not None and isinstance(found.get(name), Mapping) and isinstance(stored, Mapping):
            selector = field.selector
            if selector is None or found[name].get(selector) == stored.get(selector):  # another variant keeps no secret
                found[name] = _completed(found[name], stored, field.fields)
    return found
