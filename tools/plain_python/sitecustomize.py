"""Runs the checkout as plain Python, beside its compiled modules. Python imports this module at its start.

`make coverage` names this directory in PYTHONPATH, which every process of a test inherits: compiled modules cannot be measured.
"""

import os
import signal
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_INSTALLED: Final = ROOT / ".venv"


def find_sources(place: str) -> FileFinder:
    """Return a finder of sources only, for a directory of the checkout. Raises: ImportError for any other place."""
    path = Path(place)
    if not path.is_relative_to(ROOT) or path.is_relative_to(_INSTALLED) or not path.is_dir():
        raise ImportError(f"not a directory of the checkout: {place}")
    return FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES))


def exit_on_hangup() -> None:
    """Let a forked process of this kind end through os._exit, which saves the measurement, when SIGHUP ends it.

    Spark ends its Python workers by SIGHUP. They are forks, and each sets the default action of the signal when it starts.
    """
    set_action = signal.signal

    def set_other_action(number: int, action: Any) -> Any:
        ends = number == signal.SIGHUP and action == signal.SIG_DFL
        return set_action(number, (lambda *_: os._exit(128 + number)) if ends else action)

    signal.signal = set_other_action  # type: ignore[assignment]  # it is called by position


sys.path_hooks.insert(0, find_sources)
sys.path_importer_cache.clear()
os.register_at_fork(after_in_child=exit_on_hangup)
