"""The SQL of computed traits: what passes, what is refused and where, and when a trait runs."""

import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from sqlglot import exp

from starling_common.time.instants import parse_instant
from starling_rules.sql.runs import ACTIVE, FAILED, RUNNING, WAITING, Queued, ScheduledSql, is_due, run_id
from starling_rules.sql.schedule import next_run_ms, schedule_error
from starling_rules.sql.statement import MAX_CHARACTERS, cleaned, sql_errors
from starling_rules.sql.words import FUNCTIONS, NODES

SPENT = """SELECT e.user_id, sum(CAST(get_json_object(e.properties, '$.revenue') AS DOUBLE)) AS value
FROM events e
WHERE e.name = 'Order Completed' AND e.event_time > :as_of - INTERVAL 365 DAYS
GROUP BY e.user_id"""

ACCEPTED = [
    SPENT,
    "SELECT user_id, count(*) AS value FROM events GROUP BY user_id",
    "SELECT count(DISTINCT name) value, user_id FROM events GROUP BY user_id HAVING count(*) > 3",
    "SELECT user_id, get_json_object(traits, '$.plan') AS value FROM profiles WHERE updated_at <= :as_of",
    "SELECT p.user_id, count(e.event_id) AS value FROM profiles p LEFT JOIN events e ON e.user_id = p.user_id GROUP BY p.user_id",
    "SELECT user_id, count_if(status = 'ENTERED') AS value FROM membership_changes WHERE segment_key IN ('vip', 'new') GROUP BY 1",
    (
        "WITH days AS (SELECT user_id, to_date(event_time) AS day FROM events GROUP BY user_id, to_date(event_time)) "
        "SELECT d.user_id, count(d.day) AS value FROM days d GROUP BY d.user_id"
    ),
    (
        "SELECT user_id, value FROM (SELECT user_id, name AS value, row_number() OVER (PARTITION BY user_id ORDER BY "
        "event_time DESC) AS place FROM events) latest WHERE place = 1"
    ),
    (
        "SELECT user_id, max_by(name, event_time) AS value FROM events WHERE event_time BETWEEN :as_of - INTERVAL 7 DAYS AND "
        ":as_of GROUP BY user_id"
    ),
    (
        "SELECT user_id, count(*) AS value FROM events e WHERE EXISTS (SELECT 1 FROM profiles p WHERE p.user_id = e.user_id) "
        "GROUP BY user_id"
    ),
    "SELECT user_id, 1 AS value FROM events UNION SELECT user_id, 2 AS value FROM profiles",
    (
        "SELECT coalesce(a.user_id, b.user_id) AS user_id, coalesce(a.n, 0) + coalesce(b.n, 0) AS value "
        "FROM (SELECT user_id, count(*) AS n FROM events GROUP BY user_id) a "
        "FULL OUTER JOIN (SELECT user_id, count(*) AS n FROM membership_changes GROUP BY user_id) b ON a.user_id = b.user_id"
    ),
    "SELECT user_id, try_divide(count_if(name = 'Return'), count(*)) AS value FROM events GROUP BY user_id",
    (
        "SELECT user_id, CASE WHEN count(*) > 10 THEN 'high' WHEN count(*) > 3 THEN 'mid' ELSE 'low' END AS value FROM events "
        "GROUP BY user_id"
    ),
    "select USER_ID, COUNT(*) as VALUE from EVENTS group by USER_ID",
    "SELECT e.user_id, count(*) AS value FROM events e JOIN profiles USING (user_id) GROUP BY e.user_id",
    "SELECT user_id, sum(CAST(get_json_object(properties, '$.n') AS DECIMAL(10, 2))) AS value FROM events GROUP BY user_id",
    "SELECT user_id, date_trunc('MONTH', max(event_time)) AS value FROM events WHERE name LIKE 'Order%' GROUP BY user_id",
    "SELECT user_id, name || '!' AS value FROM events WHERE kind = 'track' AND name <> ''",
    (
        "SELECT e.user_id, max(CAST(get_json_object(p.properties, '$.price') AS DOUBLE)) AS value FROM events e JOIN products p "
        "ON p.product_id = get_json_object(e.properties, '$.product_id') WHERE p.updated_at < :as_of GROUP BY e.user_id"
    ),
    "SELECT `user_id`, 'it''s; -- no comment, /* none */' AS `value` FROM `events`",
]


@pytest.mark.parametrize("sql", ACCEPTED)
def test_a_select_over_the_tables_is_accepted(sql: str) -> None:
    assert sql_errors(cleaned(sql)) == []


def ok(column: str, rest: str = "FROM events") -> str:
    return f"SELECT user_id, {column} AS value {rest}"


MANY_JOINS = " ".join(
    ["SELECT e.user_id, 1 AS value FROM events e", *(f"JOIN profiles p{n} ON p{n}.user_id = e.user_id" for n in range(9))]
)
REFUSED = [
    # other statements
    ("DROP TABLE events", "not_select"),
    ("DELETE FROM events", "not_select"),
    ("INSERT INTO events SELECT * FROM events", "not_select"),
    ("UPDATE events SET name = 'x'", "not_select"),
    ("MERGE INTO events USING profiles ON true WHEN MATCHED THEN DELETE", "not_select"),
    ("CREATE TABLE t AS SELECT user_id, 1 AS value FROM events", "not_select"),
    ("CREATE TEMPORARY FUNCTION f AS 'a.B' USING JAR '/tmp/x.jar'", "not_select"),
    ("ADD JAR '/tmp/x.jar'", "not_select"),
    ("SET spark.sql.crossJoin.enabled = true", "not_select"),
    ("SHOW TABLES", "not_select"),
    ("DESCRIBE events", "not_select"),
    ("EXPLAIN SELECT user_id, 1 AS value FROM events", "not_select"),
    ("CACHE TABLE events", "not_select"),
    ("CALL lake.system.expire_snapshots('events')", "not_select"),
    ("BEGIN SELECT 1; END", "not_select"),
    ("EXECUTE IMMEDIATE 'DROP TABLE events'", "not_select"),
    ("DECLARE x INT", "not_select"),
    ("FROM events SELECT user_id, 1 AS value", "not_select"),
    ("SELECT user_id, 1 AS value FROM events |> WHERE true", "bad_character"),
    ("VALUES ('a', 1)", "not_select"),
    ("TABLE events", "not_select"),
    ("", "missing_sql"),
    ("  ;  ", "missing_sql"),
    ("SELECT", None),
    ("SELECT user_id, 1 AS value FROM", "bad_syntax"),
    ("SELECT user_id, (1 AS value FROM events", None),
    ("SELECT user_id, 'x AS value FROM events", "bad_syntax"),
    # several statements
    ("SELECT user_id, 1 AS value FROM events; DROP TABLE events", "not_select"),
    ("SELECT user_id, 1 AS value FROM events;;", "not_select"),
    # comments and hints
    ("SELECT user_id, 1 AS value FROM events -- all", "comment"),
    ("SELECT user_id, 1 AS value /* all */ FROM events", "comment"),
    ("/* begin */ SELECT user_id, 1 AS value FROM events", "comment"),
    ("SELECT /*+ BROADCAST(e) */ user_id, 1 AS value FROM events e", "comment"),
    ("SELECT user_id, 1 /*! */ AS value FROM events", "comment"),
    ("SELECT user_id, 1 AS value FROM events --\\\nUNION SELECT 1, 2", "bad_character"),
    # texts and characters that a second parser could read in another way
    (ok(r"'\' OR 1=1 --'"), "bad_character"),
    (ok("'${env:HOME}'"), "bad_character"),
    (ok("'${system:java.home}'"), "bad_character"),
    (ok("r'a'"), "bad_literal"),
    (ok("X'1F'"), "bad_literal"),
    (ok("1\x00"), "bad_character"),
    (ok("1\u200b"), "bad_character"),
    (ok("anonymous_ids[0]"), "bad_character"),
    (ok("1 & 2"), "bad_character"),
    (ok("~1"), "bad_character"),
    (ok("properties:a"), None),
    (ok("@x"), "bad_character"),
    (ok("?"), "bad_character"),
    (ok(":other"), "bad_parameter"),
    # functions
    (ok("java_method('java.lang.Runtime', 'getRuntime')"), "bad_function"),
    (ok("reflect('java.lang.System', 'getenv', 'HOME')"), "bad_function"),
    (ok("try_reflect('java.lang.System', 'getenv', 'HOME')"), "bad_function"),
    (ok("`reflect`('java.lang.System', 'getenv', 'HOME')"), "bad_function"),
    (ok("reflect ('java.lang.System', 'getenv')"), "bad_function"),
    (ok("system.builtin.reflect('java.lang.System', 'getenv')"), "bad_function"),
    (ok("builtin.abs(1)"), "bad_function"),
    (ok("input_file_name()"), "bad_function"),
    (ok("current_user()"), "bad_function"),
    (ok("version()"), "bad_function"),
    (ok("rand()"), "bad_function"),
    (ok("uuid()"), "bad_function"),
    (ok("monotonically_increasing_id()"), "bad_function"),
    (ok("now()"), "bad_function"),
    (ok("current_timestamp()"), "bad_function"),
    (ok("current_timestamp"), "bad_function"),
    (ok("current_date"), "bad_function"),
    (ok("current_user"), "bad_function"),
    (ok("session_user"), "bad_function"),
    (ok("user"), None),
    (ok("localtimestamp"), None),
    (ok("explode(anonymous_ids)"), "bad_function"),
    (ok("repeat(name, 1000000000)"), "bad_function"),
    (ok("sequence(1, 1000000000)"), "bad_function"),
    (ok("collect_list(name)", "FROM events GROUP BY user_id"), "bad_function"),
    (ok("from_json(properties, 'a INT')"), "bad_function"),
    (ok("transform(anonymous_ids, x -> x)"), "bad_function"),
    (ok("exists(anonymous_ids, x -> x = 'a')"), None),
    (ok("ai_query('model', name)"), "bad_function"),
    (ok("secret('scope', 'key')"), "bad_function"),
    (ok("my_function(name)"), "bad_function"),
    ("SELECT TRANSFORM (user_id) USING '/bin/sh' AS (user_id, value) FROM events", "bad_function"),
    (ok("name RLIKE '(a+)+b'"), "bad_function"),
    (ok("name REGEXP '(a+)+b'"), "bad_function"),
    (ok("name -> 'a'"), "bad_character"),
    (ok("name::int"), "bad_character"),
    # tables
    (ok("1", "FROM parquet.`/etc`"), "unknown_table"),
    (ok("1", "FROM csv.`file:///etc/passwd`"), "unknown_table"),
    (ok("1", "FROM lake.starling.behaviour_events"), "unknown_table"),
    (ok("1", "FROM starling.behaviour_events"), "unknown_table"),
    (ok("1", "FROM behaviour_events"), "unknown_table"),
    (ok("1", "FROM imports.orders"), "unknown_table"),
    (ok("1", "FROM spark_catalog.default.events"), "unknown_table"),
    (ok("1", "FROM `lake.starling.behaviour_events`"), "unknown_table"),
    (ok("1", "FROM range(10)"), "bad_function"),
    (ok("1", "FROM read_files('/etc')"), "bad_function"),
    (ok("1", "FROM IDENTIFIER('lake.starling.behaviour_events')"), "bad_function"),
    (ok("1", "FROM events VERSION AS OF 1"), "bad_syntax"),
    (ok("1", "FROM events TIMESTAMP AS OF '2026-01-01'"), None),
    (ok("1", "FROM events TABLESAMPLE (10 PERCENT)"), None),
    (ok("(SELECT count(*) FROM lake.other.events)"), "unknown_table"),
    (ok("1", "FROM events WHERE user_id IN (SELECT user_id FROM other)"), "unknown_table"),
    (ok("1", "FROM (VALUES ('a')) t"), None),
    ("WITH events AS (SELECT user_id, 1 AS value FROM profiles) SELECT user_id, value FROM events", "bad_name"),
    (("WITH RECURSIVE r AS (SELECT user_id, 1 AS value FROM events UNION ALL SELECT user_id, value FROM r) "
     "SELECT user_id, value FROM r"), "bad_syntax"),
    # joins
    (ok("1", "FROM events CROSS JOIN profiles"), None),
    ("SELECT e.user_id, 1 AS value FROM events e CROSS JOIN profiles p", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e, profiles p", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e, profiles p WHERE e.user_id = p.user_id", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN profiles p", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN profiles p ON true", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN profiles p ON 1 = 1", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN profiles p ON e.event_time > p.updated_at", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN profiles p ON e.user_id = p.user_id OR 1 = 1", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN profiles p ON e.user_id = e.message_id", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e NATURAL JOIN profiles p", "cross_join"),
    ("SELECT e.user_id, 1 AS value FROM events e LATERAL VIEW explode(anonymous_ids) t AS a", "bad_function"),
    ("SELECT e.user_id, 1 AS value FROM events e JOIN LATERAL (SELECT 1) t ON true", None),
    # columns
    ("SELECT * FROM events", None),
    ("SELECT e.* FROM events e", None),
    ("SELECT user_id, value FROM (SELECT *, 1 AS value FROM events) t", "star"),
    ("SELECT user_id, count(1) AS value, name FROM events GROUP BY user_id, name", "bad_result"),
    ("SELECT user_id FROM events", "bad_result"),
    ("SELECT user_id, count(*) FROM events GROUP BY user_id", "bad_result"),
    ("SELECT user_id AS id, 1 AS value FROM events", "bad_result"),
    ("SELECT name AS user_id, 1 AS value FROM events", "bad_result"),
    ("SELECT user_id, value FROM (SELECT lower(name) AS user_id, 1 AS value FROM events) t", "bad_result"),
    ("SELECT 'ada' AS user_id, 1 AS value", "bad_result"),
    (ok("workspace"), "unknown_column"),
    (ok("origin_offset"), "unknown_column"),
    (ok("e.workspace", "FROM events e"), "unknown_column"),
    (ok("p.name", "FROM events e JOIN profiles p ON p.user_id = e.user_id"), "unknown_column"),
    (ok("p.price", "FROM events e JOIN products p ON p.product_id = e.event_id"), "unknown_column"),
    (ok("product_id"), "unknown_column"),
    (ok("x.name", "FROM events e"), "unknown_column"),
    (ok("_metadata"), "unknown_column"),
    (ok("e._metadata.file_path", "FROM events e"), None),
    # chance
    (ok("1", "FROM events LIMIT 10"), "bad_syntax"),
    (ok("1", "FROM events ORDER BY user_id LIMIT 10 OFFSET 5"), "bad_syntax"),
    (ok("first(name)", "FROM events GROUP BY user_id"), "bad_function"),
    (ok("any_value(name)", "FROM events GROUP BY user_id"), "bad_function"),
    # the rest of the language
    (ok("1", "FROM events DISTRIBUTE BY name"), None),
    (ok("1", "FROM events SORT BY name"), None),
    (ok("row_number() OVER (ORDER BY name) AS x, 1", "FROM events QUALIFY x = 1"), None),
    ("SELECT user_id, value FROM events PIVOT (count(*) FOR name IN ('a', 'b'))", None),
    (ok("struct(name)"), "bad_function"),
    (ok("named_struct('a', name)"), "bad_function"),
    (ok("CAST(name AS STRUCT<a: INT>)"), None),
    # size
    (ok("'" + "x" * MAX_CHARACTERS + "'"), "too_complex"),
    (ok(" + ".join(["1"] * 1_000)), "too_complex"),
    (ok("(" * 13 + "1" + ")" * 13), "too_complex"),
    (ok("(" * 4_000 + "1" + ")" * 4_000), "too_complex"),
    (ok("NOT " * 1_400 + "true"), "too_complex"),
    (" UNION ALL ".join(["SELECT user_id, 1 AS value FROM events"] * 250), "too_complex"),
    (MANY_JOINS, "too_complex"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "code"), REFUSED)
def test_everything_else_is_refused_with_its_place_and_cure(sql: str, code: str | None) -> None:
    """`code` None: which of several reasons comes first is the parser's."""
    text = cleaned(sql)
    found = sql_errors(text)
    assert found
    if code is not None:
        assert code in {one.code for one in found}
    lines = text.split("\n") or [""]
    for one in found:
        assert 1 <= one.line <= len(lines)
        assert 1 <= one.column <= len(lines[one.line - 1]) + 1
        assert one.reason
        assert one.cure


def test_an_error_names_line_column_and_cure() -> None:
    sql = "SELECT e.user_id,\n  reflect('a', 'b') AS value\nFROM events e"
    assert [(one.code, one.line, one.column) for one in sql_errors(sql)] == [("bad_function", 2, 3)]
    sql = "SELECT e.user_id, e.total AS value\nFROM events e JOIN orders o ON o.user_id = e.user_id"
    found = sql_errors(sql)
    assert [(one.code, one.line, one.column) for one in found] == [("unknown_column", 1, 19), ("unknown_table", 2, 20)]
    assert "event_time" in found[0].cure
    assert found[1].cure == "one of events, profiles, membership_changes, accounts, products"
    assert sql_errors("SELECT user_id, now() AS value FROM events")[0].cure == ":as_of"


def test_every_refusal_is_fast() -> None:
    """Nested parentheses make a backtracking parser slow, and a request waits for it."""
    select = ok("1")
    deepest = [f"{'(' * depth}{select}{')' * depth}" for depth in range(1, 13)]
    deepest += [ok("(" * depth + "1" + ")" * depth) for depth in range(1, 13)]
    deepest += [ok("CASE WHEN true THEN " * 100 + "1" + " END" * 100), ok("CAST(" * 12 + "1" + " AS INT)" * 12)]
    began = time.monotonic()
    for sql in [*deepest, *ACCEPTED, *(sql for sql, _ in REFUSED)]:
        sql_errors(cleaned(sql))
    assert time.monotonic() - began < 60


def test_the_lists_name_classes_that_exist() -> None:
    assert all(hasattr(exp, name) for name in NODES)
    assert all(name == name.lower() for name in FUNCTIONS)


@pytest.mark.parametrize(
    "schedule", ["15 * * * *", "0 6 * * MON-FRI", "*/10 * * * *", "0 0 1,15 * *", "0 0 L * *", "0 12 * * 1#1", "0 0 29 2 *"]
)
def test_schedules_that_fire(schedule: str) -> None:
    assert schedule_error(schedule) is None


@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "hourly",
        "* * * *",
        "0 0 * * * *",
        "60 * * * *",
        "0 25 * * *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "*/0 * * * *",
        "a b c d e",
        "0 0 * * 8",
        "@daily",
        "1-0 * * * *",
        "* " * 60,
        5,
        None,
    ],
)
def test_what_never_fires_is_no_schedule(schedule: object) -> None:
    assert schedule_error(schedule)


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("15 * * * *", "UTC", "2026-03-01T09:15:00", "2026-03-01T10:15:00"),
        ("15 * * * *", "UTC", "2026-03-01T09:14:59.999", "2026-03-01T09:15:00"),
        ("0 6 * * *", "Asia/Tokyo", "2026-03-01T06:00:01", "2026-03-02T06:00:00"),
        ("0 6 * * MON", "Europe/Berlin", "2026-03-01T07:00:00", "2026-03-02T06:00:00"),
        # Summer time begins: 02:30 does not exist, and the run is not left out.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T03:00:00"),
        # Summer time ends: 02:30 exists twice, and there is one run.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00", "2026-10-26T02:30:00"),
    ],
)
def test_the_next_time_in_a_zone(schedule: str, zone: str, after: str, expected: str) -> None:
    assert next_run_ms(schedule, zone, at(after, zone)) == at(expected, zone)


TRAIT = ScheduledSql("acme", "spent", 1, SPENT, "0 * * * *", "UTC", archived=False)
NINE = parse_instant("2026-03-01T09:00:00Z")
HOUR = 3_600_000


def test_a_trait_runs_at_once_and_then_at_its_times() -> None:
    assert is_due(TRAIT, None, NINE)
    done = Queued(1, archived=False, state=ACTIVE, queued_at_ms=NINE + 60_000)
    assert not is_due(TRAIT, done, NINE + HOUR - 1)
    assert is_due(TRAIT, done, NINE + HOUR)
    assert is_due(TRAIT, done._replace(state=FAILED), NINE + HOUR)


@pytest.mark.parametrize("state", [WAITING, RUNNING])
def test_two_runs_never_overlap_and_missed_times_lead_to_one(state: str) -> None:
    late = NINE + 50 * HOUR
    assert not is_due(TRAIT, Queued(1, archived=False, state=state, queued_at_ms=NINE), late)
    assert is_due(TRAIT, Queued(1, archived=False, state=ACTIVE, queued_at_ms=NINE), late)
    assert not is_due(TRAIT, Queued(1, archived=False, state=ACTIVE, queued_at_ms=late), late + 1)


def test_a_new_version_and_an_archived_trait_run_at_once_but_not_into_a_run() -> None:
    done = Queued(1, archived=False, state=ACTIVE, queued_at_ms=NINE)
    for changed in (TRAIT._replace(version=2), TRAIT._replace(archived=True)):
        assert is_due(changed, done, NINE + 1)
        assert is_due(changed, done._replace(state=WAITING), NINE + 1)
        assert not is_due(changed, done._replace(state=RUNNING), NINE + 1)
    assert not is_due(TRAIT._replace(archived=True), done._replace(archived=True), NINE + 9 * HOUR)
    assert not is_due(TRAIT._replace(archived=True), None, NINE)


def test_the_id_of_a_run_is_that_of_its_trait_version_and_time() -> None:
    ids = {run_id("acme", "spent", 1, NINE), run_id("acme", "spent", 1, NINE + 1), run_id("acme", "spent", 2, NINE)}
    assert len(ids) == 3
    assert run_id("acme", "spent", 1, NINE) in ids
