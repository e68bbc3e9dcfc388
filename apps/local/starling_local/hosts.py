"""Adapter for tests: hosts on this machine, each with an address of its own.

With the rights of root each host is a network namespace with its own loopback device: 127.0.0.1 is the host itself, and a bridge
connects it with the others. Without them the hosts are addresses of this machine's loopback device.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starling_local.errors import NotPossible

_PREFIX: Final = "starling"
_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class Host:
    """A host. `prefix`: the words before a command that runs on it."""

    address: str
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts, and the `address` at which they reach this machine. `is_isolated`: the hosts are network namespaces."""

    address: str
    hosts: tuple[Host, ...]
    is_isolated: bool

    @property
    def kind(self) -> str:
        """What the hosts are."""
        return "network namespaces" if self.is_isolated else "loopback addresses"


@contextmanager
def network(count: int) -> Iterator[Network]:
    """Create hosts for the duration of a block. Raises: NotPossible if all addresses are in use."""
    with ExitStack() as last:
        if _has_namespaces():
            yield _namespaces(count, last)
        else:
            base = f"127.{_random(201)}.{_random(0)}"
            yield Network(f"{base}.1", tuple(Host(f"{base}.{11 + number}") for number in range(count)), is_isolated=False)


def _has_namespaces() -> bool:
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"{_PREFIX}-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return False
    works = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, check=False).returncode == 0
    _ip("netns", "delete", name)
    return works


def _namespaces(count: int, last: ExitStack) -> Network:
    """Create a bridge with an address, and a namespace at it for each host. `last` deletes them."""
    _delete_orphans()
    base, bridge = _free_network(), f"{_PREFIX}{os.getpid()}"
    _ip("link", "add", bridge, "type", "bridge")
    last.callback(_ip, "link", "delete", bridge)
    _ip("address", "add", f"{base}.1/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    hosts = []
    for number in range(count):
        name, address = f"{_PREFIX}-{os.getpid()}-{number}", f"{base}.{11 + number}"
        own = f"sp{number}-{os.getpid()}"  # the kernel allows 15 characters
        _ip("netns", "add", name)
        last.callback(_ip, "netns", "delete", name)
        _ip("link", "add", own, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", own, "master", bridge, "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        hosts.append(Host(address, (shutil.which("ip") or "ip", "netns", "exec", name)))
    return Network(f"{base}.1", tuple(hosts), is_isolated=True)


def _delete_orphans() -> None:
    """Delete the namespaces and bridges of processes that were killed."""
    for line in _ip("netns", "list").splitlines():
        name = line.split(" ")[0]
        parts = name.split("-")
        if len(parts) == 3 and parts[0] == _PREFIX and parts[1].isdecimal() and not _runs(parts[1]):
            _ip("netns", "delete", name)
    for line in _ip("-brief", "link", "show", "type", "bridge").splitlines():
        name = line.split(" ")[0]
        number = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and number.isdecimal() and not _runs(number):
            _ip("link", "delete", name)


def _runs(pid: str) -> bool:
    return Path("/proc", pid).is_dir()


def _free_network() -> str:
    """Return the first three numbers of the addresses of a network that no device of this machine has."""
    taken = _ip("-brief", "address")
    for _ in range(_ATTEMPTS):
        base = f"10.{_random(200)}.{_random(0)}"
        if f"{base}." not in taken:
            return base
    raise NotPossible("every network between 10.200.0.0 and 10.250.255.0 is in use")


def _random(least: int) -> int:
    return random.randint(least, 250)  # noqa: S311 - of an address


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossible(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout
