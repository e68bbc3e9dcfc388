"""Pure core: promises that were not kept; the worker ends. A module of its own, since mypyc compiles no exceptions."""


class BrokenProcessor(Exception):
    """A processor does not keep its promise; going on would loop for ever or lose changes."""


class BatchMissing(RuntimeError):
    """A batch came whose predecessor never did: what lies between would be passed over for good."""
