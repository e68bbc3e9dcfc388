"""Acknowledged writes survive the sudden end of a part."""

import time
from pathlib import Path

import psutil
from cassandra.cluster import Session

from starling_common.cassandra.sessions import DatabaseUnavailable, open_session
from starling_common.settings import Cassandra
from starling_local.instance import Instance
from starling_local.testing import Addresses, embedded

_WRITES = 300
"""The last of them is acknowledged a millisecond before the end."""


def test_cassandra_has_every_acknowledged_write_after_kill_9(tmp_path: Path) -> None:
    with embedded({"cassandra"}, tmp_path) as addresses:
        session = _session(addresses)
        session.execute("CREATE KEYSPACE durable WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE durable.written (number int PRIMARY KEY)")
        insert = session.prepare("INSERT INTO durable.written (number) VALUES (?)")
        for number in range(_WRITES):
            session.execute(insert, (number,))
        _kill(tmp_path)
        session.cluster.shutdown()

        found = {row["number"] for row in _restarted(addresses).execute("SELECT number FROM durable.written")}

    assert set(range(_WRITES)) - found == set()


def _kill(data_dir: Path) -> None:
    report = Instance(data_dir.absolute()).report()
    assert report is not None
    [pid] = [part.pid for part in report.parts if part.name == "cassandra"]
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    process.wait(30)


def _session(addresses: Addresses) -> Session:
    return open_session(Cassandra(contact_points=addresses.cassandra_host, port=addresses.cassandra_port))


def _restarted(addresses: Addresses) -> Session:
    """Return a session with the node that the supervisor started again."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return _session(addresses)
        except DatabaseUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
