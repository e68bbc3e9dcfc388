"""Pure core: the errors that end a command with a sentence, and the exit codes."""

OK = 0
FAILED = 1
NOT_POSSIBLE = 2
"""The machine or the call is not right: nothing was started or changed. (Usage errors have the same code.)"""
INTERRUPTED = 130


class LocalError(Exception):
    """Something the person at the terminal can act on: the text says what is wrong, and the cure."""

    exit_code = FAILED


class NotPossible(LocalError):
    """The machine or the call is not right; nothing was started or changed."""

    exit_code = NOT_POSSIBLE
