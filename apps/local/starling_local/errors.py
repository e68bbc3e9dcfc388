"""Pure core: the errors that a command reports as one line, and the exit codes."""

OK = 0
FAILED = 1
NOT_POSSIBLE = 2
"""The call is invalid or the machine is unsuitable; nothing was started or changed. Usage errors have the same code."""
INTERRUPTED = 130


class UserError(Exception):
    """An error that the user can resolve. The text states the cause and the cure."""

    exit_code = FAILED


class NotPossible(UserError):
    """The call is invalid or the machine is unsuitable; nothing was started or changed."""

    exit_code = NOT_POSSIBLE
