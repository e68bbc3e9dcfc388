"""Adapter: the number of files and connections that this process may have open."""

import resource

from starling_common.telemetry.logs import log


def allow_open_files(needed: int) -> None:
    """Raise the soft limit to the needed number, as far as the hard limit allows; log a warning if it is less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < needed:
        log(__name__).warning("too_few_open_files", allowed=wanted, needed=needed, cure="raise the limit of open files (ulimit -n)")
