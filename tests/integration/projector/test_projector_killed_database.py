"""A database with a single copy is killed, and with it the last tenth of a second of the rows that it acknowledged."""

import os
import signal
import threading
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable, create_tables, open_session
from starling_common.settings import Cassandra
from starling_common.testing import eventually
from starling_local.instance import Instance
from starling_local.testing import embedded
from tests.integration.projector.conftest import Start
from tests.integration.projector.feed import Log
from tests.integration.projector.members import members, totals


def _kill(home: Path) -> None:
    report = Instance(home).report()
    assert report is not None
    [part] = [part for part in report.parts if part.name == "cassandra"]
    assert part.pid is not None
    os.kill(part.pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("both", [False, True], ids=["database", "database and projector"])
def test_rows_that_a_killed_database_lost_are_written_again(log: Log, start: Start, tmp_path: Path, both: bool) -> None:
    with embedded({"cassandra"}, tmp_path / "instance") as found:
        cassandra = Cassandra(contact_points=found.cassandra_host, port=found.cassandra_port, keyspace="killed")
        session = open_session(cassandra)
        create_tables(session, cassandra)
        session.cluster.shutdown()
        users: list[str] = []
        over = threading.Event()

        def write() -> None:
            for number in count():
                if over.is_set():
                    return
                log.change(f"u{number}", "vip", 1)
                users.append(f"u{number}")

        with closing(Database(cassandra)) as tables:

            def stored() -> set[str]:
                try:
                    return set(members(tables, log, "vip"))
                except DatabaseUnavailable:
                    return set()

            with start("killed", cassandra=cassandra) as service:
                writer = threading.Thread(target=write)
                writer.start()
                eventually(lambda: len(stored()) > 100)
                _kill(found.data_dir)
                if both:
                    service.kill()
                over.set()
                writer.join()
                if both:
                    with start("killed", cassandra=cassandra):
                        eventually(lambda: stored() == set(users))
                        eventually(lambda: totals(tables, log, "vip") == (len(users), 0))
                else:
                    eventually(lambda: stored() == set(users))
                    eventually(lambda: totals(tables, log, "vip") == (len(users), 0))
                    assert "rewound_after_lost_connections" in service.log.read_text()
