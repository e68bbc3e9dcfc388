"""Pure core: DKIM signatures (RFC 6376, RFC 8463): relaxed/relaxed, with RSA or Ed25519.

`dkimpy` computes RSA in Python: 8 ms a signature with 2,048 bits, and holds the interpreter meanwhile; `cryptography` takes 0.3 ms.
The tests verify each signature with dkimpy.
"""

import base64
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

Header = tuple[bytes, bytes]
"""Name and value, which may be folded, without the line break at its end."""

_ONCE: Final = (b"from", b"to", b"subject", b"date", b"message-id", b"list-unsubscribe", b"list-unsubscribe-post")
"""Headers that are signed once more than they occur: a second one makes the signature invalid."""

_LEAST_BITS: Final = 1024
_LINE_CHARACTERS: Final = 72


class KeyRefused(Exception):
    """The private key cannot sign."""


@dataclass(frozen=True)
class Signer:
    """Signs for one domain and selector. Raises: KeyRefused at its creation from a PEM (`of`)."""

    domain: bytes
    selector: bytes
    key: RSAPrivateKey | Ed25519PrivateKey

    @classmethod
    def of(cls, domain: str, selector: str, private_key: str) -> "Signer":
        """Return the signer of a target. `private_key`: PEM. Raises: KeyRefused."""
        try:
            key: Any = load_pem_private_key(private_key.encode(), password=None)
        except (ValueError, TypeError) as cause:
            raise KeyRefused(f"the private key of DKIM for {domain} cannot be read: {cause}") from cause
        if not isinstance(key, RSAPrivateKey | Ed25519PrivateKey) or (
            isinstance(key, RSAPrivateKey) and key.key_size < _LEAST_BITS
        ):
            raise KeyRefused(f"the private key of DKIM for {domain} must be RSA with {_LEAST_BITS} bits or more, or Ed25519")
        return cls(domain.encode("idna"), selector.encode(), key)

    def header(self, headers: Sequence[Header], body: bytes) -> bytes:
        """Return the header `DKIM-Signature`, with its line break. It covers every header and the body. Lines end with CRLF."""
        names = [name.lower() for name, _ in headers]
        names += [name for name in _ONCE if name in names or name.startswith(b"list-")]
        algorithm = b"rsa-sha256" if isinstance(self.key, RSAPrivateKey) else b"ed25519-sha256"
        body_hash = base64.b64encode(hashlib.sha256(relaxed_body(body)).digest())
        value = b"".join(
            (
                b"v=1; a=", algorithm, b"; c=relaxed/relaxed; d=", self.domain, b"; s=", self.selector,
                b";\r\n t=", str(int(time.time())).encode(), b"; h=", _folded(names), b";\r\n bh=", body_hash, b";\r\n b=",
            )
        )  # fmt: skip
        signed = b"".join(relaxed_header(name, text) + b"\r\n" for name, text in _selected(headers, names))
        signature = self._sign(signed + relaxed_header(b"dkim-signature", value))
        return b"DKIM-Signature: " + value + _in_lines(base64.b64encode(signature)) + b"\r\n"

    def _sign(self, data: bytes) -> bytes:
        if isinstance(self.key, RSAPrivateKey):
            return self.key.sign(data, PKCS1v15(), SHA256())
        return self.key.sign(hashlib.sha256(data).digest())


def relaxed_header(name: bytes, value: bytes) -> bytes:
    """Return a header in relaxed form, without a line break."""
    text = re.sub(rb"[ \t]+", b" ", re.sub(rb"\r\n", b"", value)).strip(b" \t")
    return name.lower().rstrip() + b":" + text


def relaxed_body(body: bytes) -> bytes:
    """Return a body in relaxed form: no white space and no empty lines at ends, one blank in place of several."""
    text = re.sub(rb"[ \t]+(?=\r\n|\Z)", b"", body)
    text = re.sub(rb"[ \t]+", b" ", text)
    text = re.sub(rb"(\r\n)*\Z", b"", text)
    return text + b"\r\n" if text else b""


def _selected(headers: Sequence[Header], names: Sequence[bytes]) -> list[Header]:
    """Return the headers of the names: of a repeated name the last one first. A name without a header left has none."""
    left: dict[bytes, list[Header]] = {}
    for header in headers:
        left.setdefault(header[0].lower(), []).append(header)
    return [left[name].pop() for name in names if left.get(name)]


def _folded(names: Sequence[bytes]) -> bytes:
    return b":\r\n ".join(b":".join(names[at : at + 5]) for at in range(0, len(names), 5))


def _in_lines(text: bytes) -> bytes:
    return b"\r\n ".join(text[at : at + _LINE_CHARACTERS] for at in range(0, len(text), _LINE_CHARACTERS))
