"""Pure core: the definitions of an installation as lines of JSON, in an order in which they can be created."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starling_local.errors import NotPossible

Document = Mapping[str, Any]


class Halt(NamedTuple):
    """How definitions of a kind are stopped: the status of one that is, and the actions of the API that stop it and undo that.

    `undone`: what the second action has made of it.
    """

    status: str
    action: str
    undo: str
    undone: str


class Kind(NamedTuple):
    """One kind of definition. `name` as in the lines; `path` of the API; `put_creates`: whether PUT creates one, else POST.

    `single`: whether an installation has at most one, without a key, at the path itself.
    """

    name: str
    path: str
    put_creates: bool = False
    halt: Halt | None = None
    single: bool = False


SEGMENT: Final = Kind("segment", "/v1/segments", halt=Halt("paused", "pause", "resume", "resumed"))
WEBHOOK: Final = Kind("webhook", "/v1/webhooks")
TARGET: Final = Kind("target", "/v1/targets", halt=Halt("disabled", "disable", "enable", "enabled"))
POLICY: Final = Kind("policy", "/v1/policy", put_creates=True, single=True)
CAMPAIGN: Final = Kind("campaign", "/v1/campaigns")
KINDS: Final = (
    Kind("list", "/v1/lists", put_creates=True),
    Kind("event-type", "/v1/event-types"),
    Kind("computed-trait", "/v1/computed-traits"),
    Kind("view", "/v1/views"),
    SEGMENT,
    WEBHOOK,
    TARGET,
    POLICY,
    CAMPAIGN,
)
"""Every kind; a definition refers to those of earlier kinds only, and a segment to other segments too."""

SERVER_FIELDS: Final = frozenset({
    "version", "revision", "status", "created_at", "updated_at", "used_by", "as_of", "size", "backfill", "broadcast",
    "progress", "disabled", "disabled_because", "previous_secret_expires_at", "secret", "last_run", "next_run_at",
})  # fmt: skip
"""Fields of responses that belong to an installation."""

MASK: Final = "***"
"""What the API shows instead of a secret. In a body it stands for the stored one."""


class Definition(NamedTuple):
    """One definition. `halted`: whether it is stopped (`Kind.halt`): a paused segment, or a disabled target."""

    kind: Kind
    document: Document
    halted: bool = False

    @property
    def title(self) -> str:
        """Return kind and key, of a single one the kind."""
        return self.kind.name if self.kind.single else f"{self.kind.name} {self.key}"

    @property
    def key(self) -> str:
        """Return the key of the document; that of a single one is its kind."""
        return self.kind.name if self.kind.single else str(self.document["key"])


def portable(document: Document) -> dict[str, Any]:
    """Return the document without the fields that belong to an installation."""
    return {field: value for field, value in document.items() if field not in SERVER_FIELDS}


def exported(kind: Kind, document: Document) -> Definition:
    """Return the definition of a response of the API."""
    found = portable(document)
    if kind.single:
        found.pop("key", None)
    return Definition(kind, found, is_halted(kind, document))


def is_halted(kind: Kind, document: Document) -> bool:
    """Return whether the definition of a response is stopped."""
    return kind.halt is not None and document.get("status") == kind.halt.status


def missing_secrets(definition: Definition) -> list[str]:
    """Return the JSON pointer of each secret that the API has not shown."""
    return [pointer for pointer, value in _texts(definition.document) if value == MASK]


def with_secrets(definition: Definition, secrets: Mapping[str, Mapping[str, str]]) -> Definition:
    """Return the definition with secrets in their places. `secrets`: title of a definition -> JSON pointer -> secret."""
    given = secrets.get(definition.title, {})

    def filled(value: Any, pointer: str) -> Any:
        if isinstance(value, Mapping):
            return {name: filled(inner, f"{pointer}/{_escaped(name)}") for name, inner in value.items()}
        return given.get(pointer, value) if value == MASK else value

    return definition._replace(document=filled(definition.document, ""))


def _texts(value: object, pointer: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{pointer}/{_escaped(name)}")
    else:
        yield pointer, value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def read_secrets(text: str) -> dict[str, dict[str, str]]:
    """Return the secrets of a file: title of a definition -> JSON pointer -> secret. Raises: NotPossible."""
    expected = '{"target KEY": {"/password": "…"}}, as the export has listed the places'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotPossible(f"the secrets are not JSON: {error}") from error
    if not isinstance(found, dict) or not all(
        isinstance(places, dict) and all(isinstance(secret, str) for secret in places.values()) for places in found.values()
    ):
        raise NotPossible(f"the secrets must be an object such as {expected}")
    return found


def ordered(definitions: Iterable[Definition]) -> list[Definition]:
    """Return the definitions by kind and key, and each segment after those that it uses."""
    by_key = sorted(definitions, key=lambda one: (KINDS.index(one.kind), one.key))
    segments = {one.key: one for one in by_key if one.kind is SEGMENT}
    placed: dict[str, Definition] = {}
    for key in segments:
        _place(key, segments, placed, frozenset())
    return [
        *(one for one in by_key if KINDS.index(one.kind) < KINDS.index(SEGMENT)),
        *placed.values(),
        *(one for one in by_key if KINDS.index(one.kind) > KINDS.index(SEGMENT)),
    ]


def _place(key: str, segments: Mapping[str, Definition], placed: dict[str, Definition], above: frozenset[str]) -> None:
    if key in placed or key in above or key not in segments:
        return
    for used in sorted(_used_segments(segments[key].document.get("where"))):
        _place(used, segments, placed, above | {key})
    placed[key] = segments[key]


def _used_segments(where: object) -> set[str]:
    found: set[str] = set()
    parts = [where]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            if isinstance(part.get("segment"), str):
                found.add(part["segment"])
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return found


def lines(definitions: Iterable[Definition]) -> Iterator[str]:
    """Return one line of JSON a definition, equal for equal definitions."""
    for one in definitions:
        halted = {one.kind.halt.status: True} if one.kind.halt is not None and one.halted else {}
        line = {"kind": one.kind.name, "document": one.document, **halted}
        yield json.dumps(line, ensure_ascii=False, sort_keys=True)


def file_of(definition: Definition) -> tuple[str, str]:
    """Return the path of the definition below a directory, and its text on several lines: for a directory in version control."""
    [line] = lines([definition])
    text = json.dumps(json.loads(line), ensure_ascii=False, sort_keys=True, indent=2)
    return f"{definition.kind.name}/{definition.key}.json", f"{text}\n"


def read_lines(text: str) -> list[Definition]:
    """Return the definitions of such lines, ordered. Raises: NotPossible with the number of the first line that is none."""
    return _unique(_of_lines(text), "in the file")


def read_files(files: Iterable[tuple[str, str]]) -> list[Definition]:
    """Return the definitions of files, ordered. `files`: names and texts; `.jsonl` has one a line, any other name one as a whole.

    Raises: NotPossible with the name of the first file that is wrong.
    """
    found: list[Definition] = []
    for name, text in files:
        try:
            found += _of_lines(text) if name.endswith(".jsonl") else [_definition("the document", text)]
        except NotPossible as error:
            raise NotPossible(f"{name}: {error}") from error
    return _unique(found, "in the directory")


def _of_lines(text: str) -> list[Definition]:
    return [_definition(f"line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _unique(found: Sequence[Definition], place: str) -> list[Definition]:
    seen: set[str] = set()
    for one in found:
        if one.title in seen:
            raise NotPossible(f"{one.title} is {place} twice")
        seen.add(one.title)
    return ordered(found)


def documents_in(text: str | bytes, one: str, several: str) -> list[dict[str, Any]]:
    """Return the documents of a file, which contains one JSON object or a list of them. `one`, `several`: how an error names them.

    Raises: NotPossible.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 are a ValueError
        raise NotPossible(f"the file is not JSON: {error}") from error
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(each, dict) for each in listed):
        raise NotPossible(f"the file must contain {one} (a JSON object) or a list of {several}")
    return listed


def _definition(place: str, text: str) -> Definition:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotPossible(f"{place} is not JSON: {error}") from error
    kinds = {kind.name: kind for kind in KINDS}
    if not isinstance(parsed, dict) or parsed.get("kind") not in kinds:
        raise NotPossible(f'{place}: "kind" must be one of {", ".join(kinds)}')
    document = parsed.get("document")
    kind = kinds[parsed["kind"]]
    if not isinstance(document, dict) or not (kind.single or isinstance(document.get("key"), str)):
        raise NotPossible(f'{place}: "document" must be an object{"" if kind.single else " with a key"}')
    fields = ["kind", "document", *([] if kind.halt is None else [kind.halt.status])]
    unknown = sorted(parsed.keys() - set(fields))
    if unknown:
        raise NotPossible(f"{place}: {unknown[0]!r} is unknown; the fields are {', '.join(fields)}")
    halted = False if kind.halt is None else parsed.get(kind.halt.status, False)
    if not isinstance(halted, bool):
        raise NotPossible(f'{place}: "{fields[-1]}" must be true or false')
    return Definition(kind, document, halted)


def needs_new(errors: Sequence[tuple[str, str]], new: Iterable[str]) -> bool:
    """Return whether each error (code and message) is a reference to a definition with a new key."""
    keys = [repr(name) for key in new for name in (key, f"computed.{key}", f"event_{key}")]
    return bool(errors) and all(code.startswith("unknown_") and any(key in text for key in keys) for code, text in errors)
