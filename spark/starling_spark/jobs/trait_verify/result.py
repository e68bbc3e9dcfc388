"""Pure core: the result of a run, as text or as JSON lines."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starling_spark.jobs.trait_verify.comparing import DIFFERENT
from starling_spark.text import aligned

_NO_VALUE: Final = "-"


class Difference(NamedTuple):
    """A user whose published value is wrong. The values are JSON; None: no value."""

    user_id: str
    published: str | None
    computed: str | None


class Verification(NamedTuple):
    """The result for a trait. `users`: state -> number; `differences`: the first of them.

    `by_language`: the operators for which the filters of the language were used.
    """

    key: str
    version: int
    users: Mapping[str, int]
    differences: Sequence[Difference]
    by_language: Sequence[str]

    @property
    def is_right(self) -> bool:
        """Return whether no value is wrong."""
        return not self.users.get(DIFFERENT)


def as_text(found: Verification) -> str:
    """Return a line with the numbers of users, and a table of the differences."""
    numbers = ", ".join(f"{number} {state}" for state, number in sorted(found.users.items())) or "no users"
    text = f"{found.key} version {found.version}: {numbers}\n"
    if found.by_language:
        text += f"not independent: the filter was evaluated by the segment language ({', '.join(found.by_language)})\n"
    if not found.differences:
        return text
    rows = [(one.user_id, one.published or _NO_VALUE, one.computed or _NO_VALUE) for one in found.differences]
    left = found.users.get(DIFFERENT, 0) - len(rows)
    return text + aligned([("user", "published", "computed"), *rows]) + (f"and {left} more: raise --limit\n" if left else "")


def as_json(found: Verification) -> str:
    """Return a JSON object a line: the numbers of users, then each difference."""
    first = {"key": found.key, "version": found.version, "users": dict(found.users), "filter_by_language": list(found.by_language)}
    others = [
        {"user": one.user_id, "published": _decoded(one.published), "computed": _decoded(one.computed)} for one in found.differences
    ]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (first, *others))


def _decoded(text: str | None) -> object:
    return None if text is None else json.loads(text)
