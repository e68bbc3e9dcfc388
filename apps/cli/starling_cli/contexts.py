"""Adapter: the installations that a user works with, by name, in a file that only the user can read."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from starling_local.errors import NotPossible

FILE_VARIABLE: Final = "STARLING_CONTEXTS"
"""Environment variable with the path of the file."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Target(NamedTuple):
    """The address of an installation's API, without a slash at the end, and a token."""

    url: str
    token: str


class Contexts(NamedTuple):
    """The known installations by name, and the one in use."""

    targets: Mapping[str, Target]
    current: str | None = None

    def target(self, name: str) -> Target:
        """Return an installation. Raises: NotPossible with the known names."""
        if name not in self.targets:
            known = ", ".join(sorted(self.targets)) or "none"
            raise NotPossible(f"there is no context {name!r} (known: {known}): add it by `starling context add {name} --url URL`")
        return self.targets[name]

    def added(self, name: str, target: Target) -> "Contexts":
        """Return the contexts with one more, or with another target of a known one. Raises: NotPossible for an invalid name."""
        if not _NAME.fullmatch(name):
            raise NotPossible(f"{name!r} is no name of a context: letters, digits, `.`, `_` and `-`, at most 64")
        return self._replace(targets={**self.targets, name: target})

    def using(self, name: str | None) -> "Contexts":
        """Return the contexts with another one in use; None: the local instance. Raises: NotPossible for an unknown one."""
        if name is not None:
            self.target(name)
        return self._replace(current=name)

    def removed(self, name: str) -> "Contexts":
        """Return the contexts without one. Raises: NotPossible for an unknown one."""
        self.target(name)
        targets = {known: target for known, target in self.targets.items() if known != name}
        return Contexts(targets, None if self.current == name else self.current)


def checked_url(url: str) -> str:
    """Return the address of an API without a slash at the end. Raises: NotPossible if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise NotPossible(f"{url!r} is no address of an API: it must be like https://starling.example.com")
    return url.rstrip("/")


def contexts_file() -> Path:
    """Return the path of the file: $STARLING_CONTEXTS, else in the user's configuration directory."""
    given = os.environ.get(FILE_VARIABLE)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "starling" / "contexts.json"


def read_contexts(path: Path) -> Contexts:
    """Return the contexts of a file; none without the file. Raises: NotPossible for an unreadable one."""
    try:
        return _contexts(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        raise NotPossible(f"{path} cannot be read ({error.strerror}): correct its permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotPossible(f"{path} is no file of contexts ({error}): correct or delete it") from error


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file at once. Only the user can read it: it contains tokens. Raises: NotPossible if it cannot be written."""
    document = {"current": contexts.current, "contexts": {name: target._asdict() for name, target in contexts.targets.items()}}
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(document, indent=2) + "\n")
        new.replace(path)
    except OSError as error:
        raise NotPossible(f"{path} cannot be written ({error.strerror}): set {FILE_VARIABLE} to another path") from error


def _contexts(document: Mapping[str, Any]) -> Contexts:
    targets = {str(name): Target(str(found["url"]), str(found["token"])) for name, found in document["contexts"].items()}
    current = document.get("current")
    return Contexts(targets, current if current in targets else None)
