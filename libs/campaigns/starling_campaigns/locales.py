"""Pure core: locales, and the order in which a message falls back to less specific ones."""

import re
from typing import Final

LOCALE_PATTERN: Final = "^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$"
EXPECTED: Final = "a language with an optional script and region, such as ja, pt-BR or zh-Hant-TW"
_LOCALE: Final = re.compile(LOCALE_PATTERN[:-1] + r"\Z")
_MAX_CHARACTERS: Final = 35
_LANGUAGE: Final = 0
_SCRIPT_CHARACTERS: Final = 4


def is_locale(text: object) -> bool:
    """Return whether the value is a locale in its canonical form."""
    return isinstance(text, str) and _LOCALE.match(text) is not None


def canonical_locale(text: object) -> str | None:
    """Return the canonical form of a trait such as `pt_br`; None if it is not a locale."""
    if not isinstance(text, str) or not text.isascii() or len(text) > _MAX_CHARACTERS:
        return None
    parts = text.strip().replace("_", "-").split("-")
    found = "-".join(_canonical(i, part) for i, part in enumerate(parts))
    return found if is_locale(found) else None


def fallbacks(locale: str | None) -> tuple[str, ...]:
    """Return the locale and its less specific forms, the most specific first: `pt-BR`, `pt`. Empty without a locale."""
    if locale is None:
        return ()
    parts = locale.split("-")
    return tuple("-".join(parts[:length]) for length in range(len(parts), 0, -1))


def _canonical(position: int, part: str) -> str:
    if position == _LANGUAGE:
        return part.lower()
    return part.title() if len(part) == _SCRIPT_CHARACTERS else part.upper()
