"""Pure core: what the fold raises. A module of its own, since mypyc compiles no exceptions."""

from collections.abc import Collection


class BrokenProcessor(Exception):
    """A processor does not keep its promise; going on would loop for ever or lose changes. The worker ends."""


class BatchMissing(RuntimeError):
    """A batch came whose predecessor never did: what lies between would be passed over for good. The worker ends."""


class StatesTooLarge(Exception):
    """A unit would store states over the bound; `keys` are theirs."""

    def __init__(self, keys: Collection[bytes]) -> None:
        super().__init__(f"{len(keys)} states would be too large")
        self.keys = keys
