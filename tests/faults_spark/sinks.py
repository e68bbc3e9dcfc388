"""Faults while the job `exports` writes memberships to PostgreSQL:
`python -m tests.faults_spark.sinks [--count 20] [--only closed,slow] [--seed 1]`.

Each time memberships change, a run begins, and one fault happens at a random instant of it. At the end every membership in the
table must be the last one that was sent, and none may ever have gone back. Exit code 1 names the difference. The seed is printed
first.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from starling_local.ports import HOST
from starling_local.postgres import PostgresServer, postgres
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.session.spark import open_session
from tests.faults_spark.lake_and_views import report
from tests.spark.conftest import lake_settings
from tests.spark.exports_rig import PASSWORD, Rig, change, process
from tests.spark_cluster.faulty_link import Behaviour, FaultyLink, faulty_link

CHANGES: Final = 20_000
"""Of memberships, before each fault."""
USERS: Final = 15_000
RUN_SECONDS: Final = 20.0
"""About as long takes a run in a process, most of it until the first row."""
FAULT_SECONDS: Final = 8.0
PATIENCE_SECONDS: Final = 300.0
TABLE: Final = "members"


class Load:
    """Memberships that change, the export of them, and what must be in the table."""

    def __init__(self, spark: SparkSession, server: PostgresServer, link: FaultyLink, directory: Path, dice: random.Random) -> None:
        self.rig = Rig(spark, server, directory)
        self.server, self.link, self.dice = server, link, dice
        self.sent: dict[str, int] = {}
        """User -> the sequence number of the last change."""
        uri = f"postgresql://{server.uri().partition('//')[2].partition('@')[0]}@{HOST}:{link.place[1]}/postgres"
        self.definition = self.rig.to_postgres("memberships", TABLE, columns=["is_member"]) | {"to": uri}
        self.job = self.rig.job(one=self.definition)
        assert self.rig.created(self.job)

    def change(self) -> None:
        """Let memberships change."""
        users = [f"u{self.dice.randrange(USERS):05}" for _ in range(CHANGES)]
        changes = []
        for user in users:
            self.sent[user] = self.sent.get(user, 0) + 1
            changes.append(change(user, self.sent[user], 1))
        self.rig.add("membership_changes", *changes)

    def process(self) -> "subprocess.Popen[str]":
        """Start a run in a process of its own."""
        return process(self.rig, {"one": self.definition}, {"one": PASSWORD})

    def versions(self) -> dict[str, tuple[int, bool]]:
        """Return what the table has: user -> sequence number, whether the user is a member."""
        return {user: (version, is_member) for user, version, is_member in self.rig.table(TABLE, "user_id, row_version, is_member")}


Fault = Callable[[Load], None]
"""A run with a fault at a random instant. The next run may find what it has left."""


def killed(load: Load) -> None:
    """The process of the run is killed."""
    job = load.process()
    time.sleep(load.dice.uniform(RUN_SECONDS / 2, RUN_SECONDS))  # sleep: a random instant of the run
    job.kill()
    job.communicate()


def suspended(load: Load) -> None:
    """The process of the run is suspended. Another writer takes newer changes to the table, and then it goes on.

    The other one is in this process: a second process does not start while the lake is in a directory.
    """
    job = load.process()
    time.sleep(load.dice.uniform(RUN_SECONDS / 2, RUN_SECONDS))  # sleep: a random instant of the run
    job.send_signal(signal.SIGSTOP)
    try:
        load.change()
        row = load.rig.run(load.job)
        report(f"  the other writer: {'nothing' if row is None else row.state}")
    finally:
        job.send_signal(signal.SIGCONT)
    job.communicate(timeout=PATIENCE_SECONDS)
    report(f"  the suspended one ended with {job.returncode}")


def server_killed(load: Load) -> None:
    """The server is killed with all of its processes, and starts again."""
    with running(load):
        load.server.restart()


def link_behaves(behaviour: Behaviour) -> Fault:
    """Return a fault of the connections to the server."""

    def fault(load: Load) -> None:
        with running(load):
            before, load.link.behaviour = load.link.hits, behaviour
            time.sleep(FAULT_SECONDS)  # sleep: the duration of the fault
            load.link.behaviour = "faultless"
        report(f"  {load.link.hits - before} pieces of data or connections")

    return fault


@contextmanager
def running(load: Load) -> Iterator[None]:
    """Begin a run, and a random instant of it later the block; then wait for the end of the run."""
    states: list[str] = []

    def run() -> None:
        row = load.rig.run(load.job)
        states.append("nothing" if row is None else f"{row.state}: {row.message}"[:160])

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(load.dice.uniform(0, 1.5))  # sleep: a random instant of the run
    yield
    thread.join(PATIENCE_SECONDS)
    report(f"  {states[0] if states else 'the run did not end'}")
    if not states:
        raise TimeoutError("the run did not end")


FAULTS: Final[Mapping[str, Fault]] = {
    "killed": killed,
    "suspended": suspended,
    "server-killed": server_killed,
    "closed": link_behaves("closed"),
    "hanging": link_behaves("hanging"),
    "slow": link_behaves("slow"),
    "cutting": link_behaves("cutting"),
}


def differences(load: Load, before: Mapping[str, tuple[int, bool]], *, is_last: bool) -> list[str]:
    """Return what is wrong in the table: memberships that went back or were never sent; at the end, all that are not the last."""
    found, wrong = load.versions(), []
    for user, (version, _) in before.items():
        if user not in found or found[user][0] < version:
            wrong.append(f"{user} went back from {version} to {found.get(user)}")
    for user, (version, is_member) in found.items():
        if version > load.sent.get(user, 0) or is_member != bool(version % 2):
            wrong.append(f"{user} has {version}, {is_member}, which was never sent")
    if is_last:
        wrong += [
            f"{user} has {found.get(user)} instead of {last}"
            for user, last in load.sent.items()
            if found.get(user, (0,))[0] != last
        ]
    return wrong


def faulted(load: Load, names: list[str]) -> list[str]:
    """Let the faults happen, one after the other, and return what is wrong."""
    wrong: list[str] = []
    for number, name in enumerate(names, 1):
        before: dict[str, Any] = load.versions()
        load.change()
        report(f"{number} of {len(names)}: {name}")
        FAULTS[name](load)
        wrong += differences(load, before, is_last=False)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="of each fault (20)")
    parser.add_argument("--only", type=lambda words: words.split(","), default=list(FAULTS), help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)
    names = [name for name in asked.only for _ in range(asked.count)]
    dice.shuffle(names)
    report(f"seed {asked.seed}: {len(names)} faults")
    with (
        tempfile.TemporaryDirectory(prefix="starling-sinks-", dir="/var/tmp") as scratch,
        postgres(PASSWORD) as server,
        faulty_link((HOST, server.port), (HOST, 0)) as link,
    ):
        settings = lake_settings(Path(scratch))
        spark = open_session("faults", settings, iceberg_config(settings))
        try:
            load = Load(spark, server, link, Path(scratch), dice)
            wrong = faulted(load, names)
            load.rig.run(load.job)
            wrong += differences(load, {}, is_last=True)
        finally:
            spark.stop()
    report(f"{sum(load.sent.values())} changes of {len(load.sent)} memberships: {len(wrong)} differences")
    for one in wrong[:20]:
        report(f"  {one}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
