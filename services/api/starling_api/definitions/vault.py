"""Core: the secrets of definitions: encrypted in every stored document, decrypted for the endpoint and to show a new one.

A document is stored, published and compared with its encrypted secrets. No other field of it is encrypted.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starling_api.definitions.kinds.kind import Document, Kind
from starling_api.definitions.webhook_fields import MASK, PREVIOUS
from starling_api.http.errors import SecretsKeyMissing, SecretUnreadable
from starling_common.security.sealing import SEALED, KeyMissing, Place, Sealer, Unreadable, is_sealed
from starling_segments import DefinitionRefused, FieldError

Path = tuple[str, ...]

_FIELD_OF: Final[Mapping[str, str]] = {PREVIOUS: "secret"}
"""The field whose value a field had before: both are one place, so that a rotation moves the encrypted secret."""


@dataclass(frozen=True, slots=True)
class Vault:
    """Encrypts and decrypts the secrets of documents, by `Kind.secrets`."""

    sealer: Sealer = field(default_factory=Sealer)

    def refuse_sealed(self, kind: Kind, document: Mapping[str, Any]) -> None:
        """Refuse encrypted secrets in a body, which only the server writes. Raises: DefinitionRefused."""
        errors = [
            FieldError(_pointer(path), "wrong_type", f"it begins with {SEALED}, as stored secrets do", f"the secret, or {MASK}")
            for path, value in _values(kind, document)
            if is_sealed(value)
        ]
        if errors:
            raise DefinitionRefused(tuple(errors))

    def kept(self, kind: Kind, workspace: str, document: Document, before: Mapping[str, Any]) -> Document:
        """Return the document with the stored form of each secret that is the same as before, so that both can be compared."""
        stored = dict(_values(kind, before))

        def same(path: Path, value: str) -> str:
            found = stored.get(path)
            if is_sealed(value) or not isinstance(found, str) or not is_sealed(found):
                return value
            try:
                return found if self.sealer.open(found, _place(kind, workspace, document, path)) == value else value
            except Unreadable:
                return value  # the new value replaces it

        return _mapped(kind, document, same)

    def sealed(self, kind: Kind, workspace: str, document: Document) -> Document:
        """Return the document with every secret encrypted with the newest key. What cannot be decrypted stays as it is.

        Raises: SecretsKeyMissing for a plain secret and no key.
        """

        def encrypted(path: Path, value: str) -> str:
            place = _place(kind, workspace, document, path)
            if self.sealer.is_current(value) or (is_sealed(value) and self.sealer.key_id is None):
                return value
            try:
                return self.sealer.seal(self.sealer.open(value, place), place)
            except Unreadable:
                return value
            except KeyMissing as missing:
                raise SecretsKeyMissing(str(missing)) from None

        return _mapped(kind, document, encrypted)

    def opened(self, kind: Kind, workspace: str, document: Mapping[str, Any]) -> Document:
        """Return the document with plain secrets. Raises: SecretUnreadable."""

        def decrypted(path: Path, value: str) -> str:
            try:
                return self.sealer.open(value, _place(kind, workspace, document, path))
            except Unreadable as cause:
                raise SecretUnreadable(str(cause)) from None

        return _mapped(kind, document, decrypted)

    def is_current(self, kind: Kind, document: Mapping[str, Any]) -> bool:
        """Return whether every secret is encrypted with the newest key."""
        return all(self.sealer.is_current(value) for _, value in _values(kind, document) if isinstance(value, str))

    def forgotten(self, kind: Kind, document: Mapping[str, Any]) -> Document:
        """Return the document without the values of its secrets."""
        return _mapped(kind, document, lambda _path, _value: MASK)


def _pointer(path: Path) -> str:
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path)


def _place(kind: Kind, workspace: str, document: Mapping[str, Any], path: Path) -> Place:
    return Place(workspace, f"{kind.name}/{document['key']}", "/".join((_FIELD_OF.get(path[0], path[0]), *path[1:])))


def _values(kind: Kind, document: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    for path in kind.secrets(document):
        value: Any = document
        for step in path:
            value = value[step]
        yield path, value


def _mapped(kind: Kind, document: Mapping[str, Any], change: Callable[[Path, str], str]) -> Document:
    """Return the document with changed secrets. Values that are no texts stay as they are."""
    found = dict(document)
    for path, value in _values(kind, document):
        if isinstance(value, str):
            found = _with(found, path, change(path, value))
    return found


def _with(document: Mapping[str, Any], path: Path, value: str) -> Document:
    step, rest = path[0], path[1:]
    return {**document, step: _with(document[step], rest, value) if rest else value}
