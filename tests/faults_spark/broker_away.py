"""Takes the broker away from the lake's streaming job while records wait, and looks at what is there in the end:
`python -m tests.faults_spark.broker_away [--seconds 30]`. Exit code 1 names the difference.

The broker is shut down as an operator would, so that clients are refused; then a second time it only hangs.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.testing import Service
from tests.conftest import Stack
from tests.faults.parts import Server, running
from tests.faults_spark.lake_and_views import TABLE_OF, report
from tests.integration.spark.lake_instance import LakeInstance, behaviour, received

RECORDS = 2_000


def shut_down(broker: Server, seconds: float) -> None:
    """The broker is stopped and its port is closed."""
    broker.stop()
    time.sleep(seconds)  # sleep: the duration of the outage
    broker.start()
    broker.wait_ready()


def hang(broker: Server, seconds: float) -> None:
    """It holds its connections and does not answer."""
    broker.pause()
    time.sleep(seconds)  # sleep: the duration of the outage
    broker.resume()
    broker.wait_ready()


def load(made: LakeInstance) -> None:
    """More than one micro-batch takes, so that the job is at work when the broker goes."""
    made.send(BEHAVIOUR, *[made.value(BEHAVIOUR, behaviour(f"e{number}")) for number in range(RECORDS)])
    made.send("ingest.track", *[made.value("ingest.track", received("track", {"event": "E"})) for _ in range(RECORDS)])


def outage(made: LakeInstance, service: Service, take_away: Callable[[], None]) -> list[str]:
    """What the job did not live through. What waits in its group is passed once the broker is back."""
    load(made)
    take_away()
    if service.process.poll() is not None:
        return [f"the job ended with {service.process.returncode}: it was to wait"]
    load(made)
    made.settle(service, 600)
    return []


def differences(made: LakeInstance) -> list[str]:
    """Every record exactly once, in its table."""
    expected = {table: Counter(place for place in made.sent if TABLE_OF[place[0]] == table) for table in TABLE_OF.values()}
    found = {table: Counter(made.places(table)) for table in expected}
    report(f"sent {len(made.sent)}, found { ({table: places.total() for table, places in found.items()}) }")
    return [
        f"{table}: {len(expected[table] - found[table])} are missing, {len(found[table] - expected[table])} too many"
        for table in expected
        if expected[table] != found[table]
    ]


def run(seconds: float) -> int:
    """0 when the job waited each time and every record is there exactly once."""
    faults: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="starling-broker-away-", dir="/var/tmp") as scratch,
        running(("kafka", "registry"), Path(scratch) / "stack") as found,
    ):
        made = LakeInstance(Stack(found.brokers, found.registry_url, found.cassandra), Path(scratch))
        made.deploy()
        with made.running(STARLING_LAKE_BATCH_RECORDS="500") as service:
            for take_away in (shut_down, hang):
                report(f"{take_away.__name__}: the broker is away for {seconds:g} s")
                faults += outage(made, service, partial(take_away, found.servers["kafka"], seconds))
            service.stop()
        faults += differences(made)
    for fault in faults:
        report(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    sys.exit(run(parser.parse_args().seconds))
