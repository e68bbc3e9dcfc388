"""The PostgreSQL of the tests: it starts as an account without rights, checks passwords, and leaves nothing behind."""

import os

import psutil
import psycopg
import pytest

from starling_local.postgres import postgres


def test_a_server_of_a_tests_own_checks_passwords_and_leaves_nothing_behind() -> None:
    with postgres("right") as server:
        with psycopg.connect(server.uri(), password="right") as connection:
            row = connection.execute("SELECT pg_backend_pid(), current_setting('server_version_num')::int / 10000").fetchone()
            assert row is not None
            assert row[1] == 18
            assert psutil.Process(row[0]).uids().effective != 0
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.uri(), password="wrong")
        directory = server.log.parent
    assert not directory.exists()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(server.uri(), password="right")
    assert not [one for one in psutil.Process(os.getpid()).children() if one.name() == "postgres"]
