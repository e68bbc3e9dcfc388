"""The tables of users of release 0.1.0, moved into the present ones on a real Cassandra."""

from contextlib import closing

from starling_common.cassandra.database import Database
from starling_common.cassandra.migrations import move_user_tables
from starling_common.cassandra.read_models import user_partition
from starling_common.kafka.topics import load_catalogue
from starling_common.testing import own_keyspace
from tests.conftest import Stack

PARTITIONS = load_catalogue().profile_partitions
OLD_TABLES = (
    (
        "CREATE TABLE {ks}.profiles (workspace text, user_id text, anonymous_ids frozen<list<text>>, traits text, group_id text, "
        "event_time_ms bigint, received_at_micros bigint, PRIMARY KEY ((workspace, user_id)))"
    ),
    (
        "CREATE TABLE {ks}.user_segments (workspace text, user_id text, segment_key text, status text, sequence bigint, "
        "effective_at_ms bigint, segment_version int, PRIMARY KEY ((workspace, user_id), segment_key))"
    ),
    (
        "CREATE TABLE {ks}.user_events (workspace text, user_id text, event_time_ms bigint, event_id text, kind text, name text, "
        "message_id text, details text, received_at_micros bigint, correlation_id text, "
        "PRIMARY KEY ((workspace, user_id), event_time_ms, event_id)) WITH default_time_to_live = 2592000"
    ),
)
OLD_PROFILE = (
    "INSERT INTO {ks}.profiles (workspace, user_id, anonymous_ids, traits, group_id, event_time_ms, received_at_micros) "
    "VALUES ('acme', ?, ['cookie'], ?, null, 5, 6) USING TIMESTAMP ?"
)
OLD_SEGMENT = (
    "INSERT INTO {ks}.user_segments (workspace, user_id, segment_key, status, sequence, effective_at_ms, segment_version) "
    "VALUES ('acme', ?, 'vip', 'ENTERED', 3, 7, 2) USING TIMESTAMP 3"
)
OLD_EVENT = (
    "INSERT INTO {ks}.user_events (workspace, user_id, event_time_ms, event_id, kind, name, message_id, details, "
    "received_at_micros, correlation_id) VALUES ('acme', ?, ?, 'e1', 'track', 'Bought', null, '{{}}', 8, 'c') USING TIMESTAMP 9"
)
USER = "workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ?"
PROFILE_OF = f"SELECT profile, WRITETIME(profile) AS at FROM {{ks}}.user_profiles WHERE {USER}"  # noqa: S608 - constants
CHANGE_OF = f"SELECT segment_key, change, WRITETIME(change) AS at FROM {{ks}}.user_memberships WHERE {USER}"  # noqa: S608 - constants
EVENT_OF = f"SELECT event_time_ms, event_id, event, TTL(event) AS seconds FROM {{ks}}.user_history WHERE {USER}"  # noqa: S608 - constants
NEWER_PROFILE = (
    "INSERT INTO {ks}.user_profiles (workspace, source_partition, bucket, user_id, profile) "
    "VALUES (?, ?, ?, ?, {{traits: 'newer'}}) USING TIMESTAMP 100"
)
USERS = [f"user-{number}" for number in range(25)]


def test_rows_of_users_keep_their_values_timestamps_and_lifetimes(stack: Stack) -> None:
    with own_keyspace(stack.cassandra) as cassandra, closing(Database(cassandra)) as tables:
        for statement in OLD_TABLES:
            tables.write(statement, ())
        for number, user in enumerate(USERS):
            tables.write(OLD_PROFILE, (user, f"traits of {user}", 40))
            tables.write(OLD_SEGMENT, (user,))
            tables.write(OLD_EVENT, (user, number))
        newer = (*user_partition("acme", USERS[0], PARTITIONS), USERS[0])
        tables.write(NEWER_PROFILE, newer)

        moved = move_user_tables(tables, cassandra.keyspace, PARTITIONS)

        assert moved == {"profiles": 25, "user_segments": 25, "user_events": 25}
        for number, user in enumerate(USERS):
            key = (*user_partition("acme", user, PARTITIONS), user)
            (profile,) = tables.read(PROFILE_OF, key)
            (change,) = tables.read(CHANGE_OF, key)
            (event,) = tables.read(EVENT_OF, key)
            if number:
                assert (tuple(profile["profile"]), profile["at"]) == ((["cookie"], f"traits of {user}", None, 5, 6), 40)
            assert (change["segment_key"], tuple(change["change"]), change["at"]) == ("vip", ("ENTERED", 3, 7, 2), 3)
            assert (event["event_time_ms"], event["event_id"]) == (number, "e1")
            assert tuple(event["event"]) == ("track", "Bought", None, "{}", 8, "c")
            assert 2_500_000 < event["seconds"] <= 2_592_000
        (kept,) = tables.read(PROFILE_OF, newer)
        assert kept["profile"].traits == "newer"
        assert move_user_tables(tables, cassandra.keyspace, PARTITIONS) == {}
