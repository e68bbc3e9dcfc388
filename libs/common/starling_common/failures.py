"""Pure core: failures of the installation and failures that a record causes.

A record that makes the code raise (poison) goes to the dead letters after it failed twice. A failure of the installation is not the
record's: the process waits, retries or ends, and nothing goes to the dead letters.
"""

import hashlib
import traceback
from pathlib import PurePath
from typing import Final

from confluent_kafka import KafkaException

from starling_common.outcome import Refused

POISON: Final = "poison"
"""The code of a dead letter whose record made the code raise, or whose output the broker refused."""

_MESSAGE_CHARACTERS: Final = 500


class InstallationFailure(Exception):
    """A dependency does not respond, or a version does not fit. No record causes it."""


def is_of_installation(cause: BaseException) -> bool:
    """Return whether no record causes the exception: of the operating system, the memory, the broker or another dependency."""
    return isinstance(cause, InstallationFailure | OSError | MemoryError | KafkaException) or not isinstance(cause, Exception)


def poison(cause: BaseException) -> Refused:
    """Return the refusal of a record that causes this exception: its type, its message and a digest of its stack."""
    text = str(cause).encode(errors="replace").decode()[:_MESSAGE_CHARACTERS]
    return Refused(
        POISON, f"{type(cause).__name__}: {text} (stack {stack_digest(cause)}): correct the code, then replay the record"
    )


def stack_digest(cause: BaseException) -> str:
    """Return twelve hexadecimal digits that are equal for equal stacks: files, functions and lines, without directories."""
    frames = traceback.extract_tb(cause.__traceback__)
    places = "\n".join(f"{PurePath(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames)
    return hashlib.sha256(f"{type(cause).__name__}\n{places}".encode()).hexdigest()[:12]
