"""Pure core: the stored options of an instance and the options of the command line → the next options."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from starling_local.errors import NotPossible
from starling_local.instance import SCALABLE, Clock, Options
from starling_local.ports import DEFAULT_BASE, MAX_WORKERS, Ports

_WORKSPACE = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class RequestedOptions:
    """The options of the command line; None and empty mean: unchanged, or the default of a new instance."""

    clock: Clock | None = None
    port_base: int | None = None
    spark: bool | None = None
    lake: bool | None = None
    views: bool | None = None
    backfill: bool | None = None
    campaigns: bool | None = None
    scale: Mapping[str, int] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    history_days: int | None = None


def first_options(requested: RequestedOptions) -> Options:
    """Return the options of a new instance. Raises NotPossible for a port base out of range."""
    return Options(
        instance_id=uuid.uuid4().hex,
        port_base=_checked_base(DEFAULT_BASE if requested.port_base is None else requested.port_base),
        clock=requested.clock or "wall",
        spark=requested.spark is not False,
        lake=requested.lake is True,
        views=requested.views is True,
        backfill=requested.backfill is True,
        campaigns=requested.campaigns is True,
        scale=dict(requested.scale),
        only=requested.only,
        workspaces=requested.workspaces,
        history_days=30 if requested.history_days is None else requested.history_days,
    )


def next_options(before: Options, requested: RequestedOptions, *, running: bool) -> Options:
    """Return `before` itself if nothing changes, else the new options with the next revision.

    Raises: NotPossible for another clock, and for another port base of a running instance.
    """
    if requested.clock and requested.clock != before.clock:
        raise NotPossible(
            f"this instance was made with --clock {before.clock}, and its state depends on that clock: "
            f"for --clock {requested.clock} choose another --data-dir"
        )
    if running and requested.port_base not in (None, before.port_base):
        raise NotPossible(f"this instance runs on port base {before.port_base}: run `starling down` first, or omit --port-base")
    changed = msgspec.structs.replace(
        before,
        port_base=before.port_base if requested.port_base is None else _checked_base(requested.port_base),
        spark=before.spark if requested.spark is None else requested.spark,
        lake=before.lake if requested.lake is None else requested.lake,
        views=before.views if requested.views is None else requested.views,
        backfill=before.backfill if requested.backfill is None else requested.backfill,
        campaigns=before.campaigns if requested.campaigns is None else requested.campaigns,
        scale={**before.scale, **requested.scale},
        only=requested.only or (before.only if running else ()),
        workspaces=tuple(dict.fromkeys((*before.workspaces, *requested.workspaces))),
        history_days=before.history_days if requested.history_days is None else requested.history_days,
    )
    return before if changed == before else msgspec.structs.replace(changed, revision=before.revision + 1)


def parse_scale(texts: Sequence[str]) -> dict[str, int]:
    """Return `["segmenter=2"]` as `{"segmenter": 2}`. Raises NotPossible for an unknown service or an invalid number."""
    scale: dict[str, int] = {}
    for text in texts:
        service, _, count = text.partition("=")
        if service not in SCALABLE or not count.isascii() or not count.isdigit() or not 1 <= int(count) <= MAX_WORKERS:
            raise NotPossible(
                f"--scale {text}: write SERVICE=N with SERVICE one of {', '.join(SCALABLE)} and N from 1 to {MAX_WORKERS}"
            )
        scale[service] = int(count)
    return scale


def parse_workspaces(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of additional workspaces. Raises NotPossible for a name that no service accepts."""
    for name in names:
        if not _WORKSPACE.fullmatch(name):
            raise NotPossible(f"--workspace {name}: write a lower-case letter, then up to 63 of a-z, 0-9, _ and -")
    return tuple(dict.fromkeys(names))


def _checked_base(base: int) -> int:
    try:
        return Ports(base).base
    except ValueError as error:
        raise NotPossible(str(error)) from error
