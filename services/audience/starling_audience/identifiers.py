"""Pure core: the identifiers by which advertising systems know people: normalised, and as SHA-256."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+\Z")
_PHONE: Final = re.compile(r"\+[1-9][0-9]{6,14}\Z")
_SPACE: Final = re.compile(r"\s+")
_SEPARATORS: Final = re.compile(r"[\s().\-/]+")
_DOTLESS: Final = frozenset({"gmail.com", "googlemail.com"})
"""Domains at which dots before the @ have no meaning."""
_MOST_CHARACTERS: Final = 320


def email_of(traits: Mapping[str, Any]) -> str | None:
    """Return the trait `email` without spaces and in lower case; None if it is no address."""
    value = traits.get("email")
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        return None
    found = _SPACE.sub("", value).lower()
    return found if _ADDRESS.match(found) else None


def phone_of(traits: Mapping[str, Any]) -> str | None:
    """Return the trait `phone` in E.164, such as `+4915112345678`; None without a country code (`+` or `00`)."""
    value = traits.get("phone")
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        return None
    found = _SEPARATORS.sub("", value)
    found = f"+{found[2:]}" if found.startswith("00") else found
    return found if _PHONE.match(found) else None


def without_dots(email: str) -> str:
    """Return an address of Gmail without the dots before the @, as Google hashes it; another address as it is."""
    name, _, domain = email.rpartition("@")
    return f"{name.replace('.', '')}@{domain}" if domain in _DOTLESS else email


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
