"""The embedded database, which has a single copy of each row."""

import os
import signal
import threading
from contextlib import closing
from pathlib import Path

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable, create_tables, open_session
from starling_common.settings import Cassandra
from starling_common.testing import eventually
from starling_local.instance import Instance
from starling_local.testing import embedded

WRITERS = 4


def test_a_killed_database_has_every_write_that_it_acknowledged(tmp_path: Path) -> None:
    with embedded({"cassandra"}, tmp_path / "instance") as found:
        settings = Cassandra(contact_points=found.cassandra_host, port=found.cassandra_port, keyspace="durable")
        session = open_session(settings)
        create_tables(session, settings)
        session.execute("CREATE TABLE durable.written (writer int, number int, PRIMARY KEY (writer, number))")
        session.cluster.shutdown()
        acknowledged: dict[int, int] = {}
        with closing(Database(settings)) as database:

            def write(writer: int) -> None:
                number = 0
                try:
                    while True:
                        database.write("INSERT INTO {ks}.written (writer, number) VALUES (?, ?)", (writer, number))
                        acknowledged[writer] = number
                        number += 1
                except DatabaseUnavailable:
                    return

            threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
            for thread in threads:
                thread.start()
            eventually(lambda: len(acknowledged) == WRITERS and min(acknowledged.values()) > 50)
            report = Instance(found.data_dir).report()
            assert report is not None
            [part] = [part for part in report.parts if part.name == "cassandra"]
            assert part.pid is not None
            os.kill(part.pid, signal.SIGKILL)
            for thread in threads:
                thread.join()
        with closing(Database(settings)) as database:

            def rows(writer: int) -> int:
                try:
                    return int(database.read("SELECT count(*) FROM {ks}.written WHERE writer = ?", (writer,))[0]["count"])
                except DatabaseUnavailable:
                    return -1

            stored = {writer: eventually(lambda writer=writer: rows(writer) + 1) - 1 for writer in range(WRITERS)}  # type: ignore[misc]
    assert all(stored[writer] > acknowledged[writer] for writer in range(WRITERS)), (stored, acknowledged)
