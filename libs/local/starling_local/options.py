"""Pure core: what an instance is to be from now on, from what it was and what is asked."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from starling_local.errors import NotPossible
from starling_local.instance import SCALABLE, Clock, Options
from starling_local.ports import DEFAULT_BASE, MAX_WORKERS, Ports


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line said; None and empty mean: as before, or the default."""

    clock: Clock | None = None
    port_base: int | None = None
    spark: bool | None = None
    lake: bool | None = None
    views: bool | None = None
    backfill: bool | None = None
    scale: Mapping[str, int] = field(default_factory=dict)
    only: tuple[str, ...] = ()


def first_options(asked: Asked) -> Options:
    """The options of a new instance. Raises NotPossible for a base that leaves no room."""
    return Options(
        instance_id=uuid.uuid4().hex,
        port_base=_checked_base(DEFAULT_BASE if asked.port_base is None else asked.port_base),
        clock=asked.clock or "wall",
        spark=asked.spark is not False,
        lake=asked.lake is True,
        views=asked.views is True,
        backfill=asked.backfill is True,
        scale=dict(asked.scale),
        only=asked.only,
    )


def next_options(before: Options, asked: Asked, *, running: bool) -> Options:
    """The same object if nothing changes, else the new options with the next revision.

    Raises: NotPossible for what cannot change: the clock of an instance, the ports of one that runs.
    """
    if asked.clock and asked.clock != before.clock:
        raise NotPossible(
            f"this instance was made with --clock {before.clock} and its state counts on it: "
            f"for --clock {asked.clock} take another --data-dir"
        )
    if running and asked.port_base not in (None, before.port_base):
        raise NotPossible(f"this instance runs on port base {before.port_base}: `starling down` first, or leave --port-base away")
    changed = msgspec.structs.replace(
        before,
        port_base=before.port_base if asked.port_base is None else _checked_base(asked.port_base),
        spark=before.spark if asked.spark is None else asked.spark,
        lake=before.lake if asked.lake is None else asked.lake,
        views=before.views if asked.views is None else asked.views,
        backfill=before.backfill if asked.backfill is None else asked.backfill,
        scale={**before.scale, **asked.scale},
        only=asked.only or before.only,
    )
    return before if changed == before else msgspec.structs.replace(changed, revision=before.revision + 1)


def parse_scale(texts: Sequence[str]) -> dict[str, int]:
    """`["segmenter=2"]` → `{"segmenter": 2}`. Raises NotPossible that names what is right."""
    scale: dict[str, int] = {}
    for text in texts:
        service, _, count = text.partition("=")
        if service not in SCALABLE or not count.isascii() or not count.isdigit() or not 1 <= int(count) <= MAX_WORKERS:
            raise NotPossible(
                f"--scale {text}: write SERVICE=N with SERVICE one of {', '.join(SCALABLE)} and N from 1 to {MAX_WORKERS}"
            )
        scale[service] = int(count)
    return scale


def _checked_base(base: int) -> int:
    try:
        return Ports(base).base
    except ValueError as error:
        raise NotPossible(str(error)) from error
