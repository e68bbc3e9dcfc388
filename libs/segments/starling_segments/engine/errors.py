"""Pure core: errors of the evaluation. A module of its own, because mypyc cannot compile exceptions."""


class TimerError(RuntimeError):
    """A timer is still due after it was fired: a defect in a leaf node. Raised instead of an endless loop."""
