"""Core: the rotation of the key of an installation, with which the secrets of definitions are encrypted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starling_api.definitions.definition import Author, Definition
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.kinds import TARGETS, WEBHOOKS
from starling_api.definitions.vault import Vault
from starling_api.definitions.webhook_fields import without_expired_secret
from starling_api.http.errors import Archived, SecretsKeyMissing, SecretUnreadable
from starling_api.ports import DefinitionReader, NowMicros
from starling_common.cassandra.read_models import ARCHIVED
from starling_common.security.sealing import KeyMissing

ROTATION_MICROS: Final = 10_000_000
"""Time after which a rotation of the key begins no further definition, so that its request ends before clients give up."""


class Unreadable(NamedTuple):
    """A definition with a secret that cannot be decrypted. `reason` names the key and the cure."""

    kind: str
    key: str
    reason: str


class Rotated(NamedTuple):
    """What a rotation of the installation's key has done in a workspace. `rewritten`: kind and key of each changed definition.

    `complete` False: the time of a request was over, and a repetition goes on.
    """

    key_id: str
    rewritten: Sequence[tuple[str, str]]
    unreadable: Sequence[Unreadable]
    complete: bool


def rotate_keys(
    reader: DefinitionReader, vault: Vault, author: Author, now_micros: NowMicros, rewrite: Callable[[Kind, str], object]
) -> Rotated:
    """Rewrite the definitions of the workspace with a secret that is plain, or encrypted with an older key.

    `rewrite` (kind, key) encrypts the secrets of one with the newest key, and may raise SecretUnreadable or Archived.
    Raises: SecretsKeyMissing.
    """
    if vault.sealer.key_id is None:
        raise SecretsKeyMissing(str(KeyMissing()))
    rewritten: list[tuple[str, str]] = []
    unreadable: list[Unreadable] = []
    until_micros = now_micros() + ROTATION_MICROS
    for kind in (WEBHOOKS, TARGETS):
        for one in reader.definitions(author.workspace, kind.name):
            if one.status == ARCHIVED or vault.is_current(kind, one.document):
                continue
            if now_micros() > until_micros:
                return Rotated(vault.sealer.key_id, rewritten, unreadable, complete=False)
            try:
                rewrite(kind, one.key)
            except SecretUnreadable as cause:
                unreadable.append(Unreadable(kind.name, one.key, str(cause)))
            except Archived:  # another request has archived it meanwhile
                continue
            else:
                rewritten.append((kind.name, one.key))
    return Rotated(vault.sealer.key_id, rewritten, unreadable, complete=True)


def plain_document(vault: Vault, kind: Kind, workspace: str, current: Definition, now_micros: int) -> Mapping[str, Any]:
    """Return the document with plain secrets if one of them is not encrypted with the newest key."""
    if vault.is_current(kind, current.document):
        return current.document
    document = without_expired_secret(current.document, now_micros // 1000) if kind is WEBHOOKS else current.document
    return vault.opened(kind, workspace, document)
