"""Pure core: the errors of the fold. They have a module of their own because mypyc compiles no exceptions."""

from collections.abc import Collection

from starling_common.failures import InstallationFailure


class ProcessorError(Exception):
    """A processor violated its contract. To continue would loop endlessly or lose changes, so the worker ends."""


class BatchMissing(RuntimeError):
    """A fetch was received without the one before it. To continue would skip records, so the worker ends."""


class StateUnreadable(InstallationFailure):
    """A stored state cannot be decoded, as when a newer version wrote it.

    The records are not refused: they would be those of every user.
    """


class OffsetsMisfit(Exception):
    """The group's offsets do not fit the states of a partition, which is therefore not processed; the message contains the cure."""


class StatesTooLarge(Exception):
    """A unit would store states above the limit; `keys` are their keys."""

    def __init__(self, keys: Collection[bytes]) -> None:
        super().__init__(f"{len(keys)} states exceed the limit")
        self.keys = keys
