"""Pure core: errors of the evaluation. A module of its own, because mypyc cannot compile exceptions."""


class Unmergeable(ValueError):
    """Two states have an accumulator that cannot be merged: of a sequence, or of a leaf node that the plan lacks."""


class TimerError(RuntimeError):
    """A timer is still due after it was fired: a defect in a leaf node. Raised instead of an endless loop."""
