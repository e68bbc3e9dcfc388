"""Pure core: texts without secrets and personal data: the messages of errors, and statements in SQL."""

import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel, SecretStr
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

HIDDEN: Final = "***"
_MOST: Final = 1_000
_MOST_READ: Final = 4_000
"""Of a longer line the rest is not searched."""
_LEAST_SECRET: Final = 4
"""A shorter one would be found in any word."""
_USER: Final = re.compile(r"(?<=://)[^/\s@]*@")
_QUERY: Final = re.compile(r"(\b[a-z][a-z0-9+.:-]*://[^\s?#]*)[?#]\S*", re.IGNORECASE)
_NAMED: Final = re.compile(
    r"(?i)\b([\w.-]*(?:password|passwd|pwd|secret|token|credential|access[._-]?key|api[._-]?key|jaas)[\w.-]*\s*[=:]\s*)(?:bearer\s+|basic\s+)?\S+"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=_.~-]{4,}")
_MAIL: Final = re.compile(r"[^\s@<>,;:'\"()]+@[^\s@<>,;:'\"()]+")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_HALF_QUOTED: Final = re.compile(r"(?:(?<=^)|(?<=[\s(=:]))['\"].*$")
"""A quote without its end: that of a text that was cut off."""


def secrets_of(settings: BaseModel) -> frozenset[str]:
    """Return the values of all secrets in settings, and the parts of those that are lists of pairs."""
    return frozenset(
        part for secret in _secrets(settings) for part in (secret, *re.split(r"[,=]", secret)) if len(part.strip()) >= _LEAST_SECRET
    )


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the first line of a message without what can be a secret or personal.

    Quoted texts are left out, because the errors of Spark and of Python quote the values of rows.
    """
    line = (text.strip().splitlines() or [""])[0]
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, HIDDEN)
    line = line[:_MOST_READ]
    line = _QUERY.sub(rf"\1?{HIDDEN}", _USER.sub("", line))
    line = _NAMED.sub(rf"\1{HIDDEN}", line)
    line = _BEARER.sub(rf"\1 {HIDDEN}", line)
    line = _QUOTED.sub(f"'{HIDDEN}'", line)
    line = _HALF_QUOTED.sub(f"'{HIDDEN}'", line.replace(f"'{HIDDEN}'", HIDDEN))
    return _MAIL.sub(HIDDEN, line)[:_MOST]


def without_literals(statement: str) -> str | None:
    """Return a statement with `?` for each literal, and without comments; None if it cannot be parsed.

    A literal can be personal, such as the id of a user.
    """
    try:
        trees = Spark().parse(statement)
    except (SqlglotError, RecursionError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        return None
    made = tree.transform(lambda node: exp.Placeholder() if isinstance(node, exp.Literal) else node)
    return str(made.sql(dialect=Spark, comments=False))


def _secrets(value: Any) -> Iterable[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from _secrets(one)
