"""Fixtures of audience sync: a workspace, and the systems to which it is synchronised."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from starling_common.cassandra.database import Database
from starling_common.testing import own_keyspace
from tests.conftest import Stack
from tests.integration.audience.vendors import Vendors
from tests.integration.audience.world import World


@pytest.fixture(scope="module")
def own_stack(stack: Stack) -> Iterator[Stack]:
    """The session's broker, with read models of this file's own."""
    with own_keyspace(stack.cassandra) as cassandra:
        yield replace(stack, cassandra=cassandra)


@pytest.fixture
def world(own_stack: Stack, workspace: str) -> Iterator[World]:
    database, vendors = Database(own_stack.cassandra), Vendors()
    found = World(own_stack, database, workspace, vendors)
    yield found
    found.archive()  # the processes of later tests do not call servers that are gone
    vendors.close()
    database.close()
