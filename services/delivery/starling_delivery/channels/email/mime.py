"""Pure core: the parts of a mail in 7-bit lines that end with CRLF.

`EmailMessage` parses and folds each header of each part: two thirds of the processor time of a mail. Here only the unusual headers
go through it, and the encodings are those of the standard library.
"""

import base64
import binascii
import re
from email.headerregistry import Address
from email.policy import SMTP
from functools import lru_cache
from typing import Final

from starling_delivery.channels.email.signing import Header

_POLICY: Final = SMTP.clone(cte_type="7bit")
"""Every server takes 7-bit content."""

_MOST_LINE: Final = 78
"""Characters of a line that is not encoded, as the policy has it."""

_PLAIN: Final = re.compile(r"[!-~]+(?: [!-~]+)*\Z")
_ENCODED_WORD: Final = "=?"
_SIMPLE_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\Z"
)


def subject_header(subject: str) -> Header:
    """Return the header of a subject. Raises: ValueError, MessageError for one with a line break."""
    name = "Subject"
    if len(name) + 2 + len(subject) <= _MOST_LINE and _ENCODED_WORD not in subject and _PLAIN.match(subject):
        return name.encode(), b" " + subject.encode()
    return _folded(name, subject)


@lru_cache(maxsize=1_000)
def sender_header(name: str, address: str) -> Header:
    """Return the header of a sender. Raises: ValueError, MessageError for an invalid one."""
    return _folded("From", Address(name, addr_spec=address))


def recipient_header(address: str) -> Header:
    """Return the header of a recipient. Raises: ValueError, MessageError for an invalid one."""
    name = "To"
    if len(name) + 2 + len(address) <= _MOST_LINE and _SIMPLE_ADDRESS.match(address):
        return name.encode(), b" " + address.encode()
    return _folded(name, Address(addr_spec=address))


def content(text: str | None, html: str | None, boundary: str) -> tuple[list[Header], bytes]:
    """Return the headers and the body of a mail with a text, with HTML, or with both. `boundary`: what separates both."""
    parts = [_part(kind, found) for kind, found in (("plain", text), ("html", html)) if found is not None]
    if not parts:
        return [], b""
    if len(parts) == 1:
        [(headers, body)] = parts
        return [(b"MIME-Version", b" 1.0"), *headers], body
    line = f"--{boundary}".encode()
    bodies = [line + b"\r\n" + b"".join(b"%b:%b\r\n" % header for header in headers) + b"\r\n" + body for headers, body in parts]
    kind = f' multipart/alternative; boundary="{boundary}"'.encode()
    return [(b"MIME-Version", b" 1.0"), (b"Content-Type", kind)], b"\r\n".join([*bodies, line + b"--\r\n"])


def _part(kind: str, text: str) -> tuple[list[Header], bytes]:
    encoding, body = _encoded(text)
    of_type = f' text/{kind}; charset="utf-8"'.encode()
    return [(b"Content-Type", of_type), (b"Content-Transfer-Encoding", b" " + encoding)], body


def _encoded(text: str) -> tuple[bytes, bytes]:
    """Return the name of the shortest encoding, and the text in it."""
    lines = text.encode().splitlines() or [b""]
    body = b"".join(line + b"\r\n" for line in lines)
    if body.isascii() and b"\0" not in body and all(len(line) <= _MOST_LINE for line in lines):
        return b"7bit", body
    quoted = binascii.b2a_qp(body, istext=True)
    if len(quoted) > len(body) * 4 // 3:
        return b"base64", base64.encodebytes(body).replace(b"\n", b"\r\n")
    return b"quoted-printable", quoted


def _folded(name: str, value: str | Address) -> Header:
    _, header = _POLICY.header_store_parse(name, value)
    folded = _POLICY.fold_binary(name, header)
    return name.encode(), folded.removeprefix(name.encode() + b":").removesuffix(b"\r\n")
