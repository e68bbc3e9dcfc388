"""Adapter: secrets at rest, encrypted with AES-256-GCM under the keys of the installation."""

import base64
import binascii
import copy
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from starling_common.settings import LinkKeys, SecretKeys

SEALED: Final = "sealed:v1:"
"""The beginning of every encrypted secret: `sealed:v1:<key id>:<base64 of nonce, ciphertext and tag>`."""

KEY_BYTES: Final = 32
KEYS_SETTING: Final = "STARLING_SECRETS__KEYS"
LINK_KEYS_SETTING: Final = "STARLING_LINKS__KEYS"
FILE_SETTING: Final = "STARLING_SECRETS__KEYS_FILE"
CURE: Final = f"set {KEYS_SETTING} or {FILE_SETTING}; `starling secrets new-key` prints a key"
_NONCE_BYTES: Final = 12
_KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


class Place(NamedTuple):
    """Where a secret belongs. It is authenticated with the secret, which cannot be opened at another place.

    `resource`: kind and key, such as `webhook/crm`. `field`: its path in the document, such as `dkim/private_key`.
    """

    workspace: str
    resource: str
    field: str

    def __str__(self) -> str:
        return f"{self.field} of {self.resource} in the workspace {self.workspace}"


class KeyMissing(Exception):
    """The process has no key, so it cannot encrypt a secret."""

    def __init__(self) -> None:
        super().__init__(f"this installation has no key for secrets, so none can be stored: {CURE}")


class Unreadable(Exception):
    """A stored secret cannot be decrypted. The message names the place, the id of the key and the cure."""


class Sealer:
    """Encrypts and decrypts secrets. The first key encrypts, all keys decrypt. Without keys only plain secrets can be read.

    Thread-safe. No representation and no error contains a key or a secret.
    """

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        """`keys`: id -> 32 bytes, the newest first."""
        self._ciphers = {name: AESGCM(key) for name, key in (keys or {}).items()}
        self.key_id: str | None = next(iter(self._ciphers), None)
        """The id of the key that encrypts; None without keys."""

    @classmethod
    def of(cls, settings: SecretKeys) -> "Sealer":
        """Return the sealer of the settings. Raises: ValueError that names the setting, the entry and the cure."""
        return cls(keys_of(settings, KEYS_SETTING))

    def seal(self, plain: str, place: Place) -> str:
        """Return the encrypted secret. Raises: KeyMissing."""
        if self.key_id is None:
            raise KeyMissing
        nonce = os.urandom(_NONCE_BYTES)
        data = nonce + self._ciphers[self.key_id].encrypt(nonce, plain.encode("utf-8", "surrogatepass"), _associated(place))
        return f"{SEALED}{self.key_id}:{base64.b64encode(data).decode()}"

    def open(self, stored: str, place: Place) -> str:
        """Return the secret. A plain one, which an earlier version has stored, is returned as it is. Raises: Unreadable."""
        if not is_sealed(stored):
            return stored
        name, _, text = stored.removeprefix(SEALED).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            known = f"has only {', '.join(self._ciphers)}" if self._ciphers else "has none"
            raise Unreadable(
                f"{place}: it is encrypted with the key {name!r}, and this process {known}: add that key to {KEYS_SETTING} or "
                f"{FILE_SETTING}, or store the secret again"
            )
        try:
            data = base64.b64decode(text, validate=True)
            opened = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _associated(place))
            return opened.decode("utf-8", "surrogatepass")
        except (InvalidTag, ValueError):
            raise Unreadable(
                f"{place}: the key {name!r} does not decrypt it: another key had this id, or the value was changed or copied from "
                "another place. Restore the former key, or store the secret again"
            ) from None

    def is_current(self, stored: str) -> bool:
        """Return whether the secret is encrypted with the key that encrypts."""
        return self.key_id is not None and stored.startswith(f"{SEALED}{self.key_id}:")


def opened(
    document: Mapping[str, Any], paths: Iterable[Sequence[str]], owner: tuple[str, str], sealer: Sealer
) -> tuple[dict[str, Any], str | None]:
    """Return a copy with plain secrets, and the reason why one cannot be decrypted, which stays as it is. None: all are plain.

    `paths`: of the secrets in the document. `owner`: workspace and resource, as of `Place`.
    """
    plain, problem = copy.deepcopy(dict(document)), None
    for path in paths:
        inner = plain
        for name in path[:-1]:
            inner = inner[name]
        try:
            inner[path[-1]] = sealer.open(inner[path[-1]], Place(*owner, "/".join(path)))
        except Unreadable as cause:
            problem = problem or str(cause)
    return plain, problem


def new_key(name: str) -> str:
    """Return a random key as the settings take it: `id=base64`. Raises: ValueError for an invalid id."""
    made = f"{name}={base64.b64encode(os.urandom(KEY_BYTES)).decode()}"
    if list(parse_keys(made, "--id")) != [name]:
        raise ValueError(f"{name!r} is no id of a key: 1 to 64 letters, digits and ._-")
    return made


def keys_of(settings: SecretKeys | LinkKeys, setting: str) -> dict[str, bytes]:
    """Return id -> key; empty without keys. `setting`: the variable of the keys; that of the file has `_FILE` at its end.

    Raises: ValueError that names the setting, the entry and the cure.
    """
    of_file = f"{setting}_FILE"
    if settings.keys is not None and settings.keys_file is not None:
        raise ValueError(f"{setting} and {of_file} exclude each other: set one of them")
    if settings.keys_file is not None:
        try:
            return parse_keys(Path(settings.keys_file).read_text(encoding="ascii"), of_file)
        except (OSError, UnicodeDecodeError) as cause:
            reason = cause.strerror if isinstance(cause, OSError) else "it is not ASCII"
            raise ValueError(f"{of_file}={settings.keys_file}: the file cannot be read: {reason}") from None
    return {} if settings.keys is None else parse_keys(settings.keys.get_secret_value(), setting)


def is_sealed(stored: object) -> bool:
    """Return whether a stored value is an encrypted secret."""
    return isinstance(stored, str) and stored.startswith(SEALED)


def parse_keys(text: str, setting: str) -> dict[str, bytes]:
    """Return id -> key of a text such as `2027=<base64>,2026=<base64>`. Line breaks separate keys too, `#` begins a comment.

    Raises: ValueError with the setting and the number of the entry, without its key.
    """
    lines = (line.partition("#")[0] for line in text.splitlines())
    entries = [entry.strip() for line in lines for entry in line.split(",") if entry.strip()]
    found: dict[str, bytes] = {}
    for number, entry in enumerate(entries, 1):
        name, separator, encoded = entry.partition("=")
        if not separator or not _KEY_ID.match(name):
            raise ValueError(f"{setting}: entry {number}: expected id=key, where the id has 1 to 64 letters, digits and ._-")
        if name in found:
            raise ValueError(f"{setting}: entry {number}: the id {name!r} is there twice: give each key an id of its own")
        try:
            found[name] = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            found[name] = b""
        if len(found[name]) != KEY_BYTES:
            raise ValueError(f"{setting}: entry {number}: the key {name!r} is not the base64 of {KEY_BYTES} bytes")
    return found


def _associated(place: Place) -> bytes:
    return json.dumps(["starling", *place]).encode()
