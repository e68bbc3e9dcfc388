"""Imports: the job `imports` with files of events, of users of a list and of products, and with a table of PostgreSQL. Prints JSON.

    PYTHONPATH=. python benchmarks/spark_imports.py [--rows 5000000] [--files 4] [--only events,database] [--small] [--write]

Each import is created by the API and run by a process of the job, as an operator starts it. Edge, API, broker, Cassandra and
PostgreSQL run on the same cores. The clock of an import starts with the process; the start of Spark is also reported alone.
The table is imported a second time unchanged, and the records of all topics are counted before and after. With fewer than
5,000,000 rows the time for these is extrapolated: the start, and the rows at the measured rate. Only a run with all of them
can meet the goal.
"""

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from common import goals, shop
from common.bench import keep, kept
from common.importing import LIST, PASSWORD, Platform, Took, platform

from starling_common.kafka.topics import LIST_MEMBERSHIP, PRODUCTS
from starling_common.time.instants import format_instant
from starling_local.postgres import USER

GOAL_ROWS: Final = 5_000_000
GOAL_SECONDS: Final = 240.0
PARTS: Final = ("events", "list", "catalog", "database")
USERS_A_ROW: Final = 0.1
"""Users of the events, a row."""
CATEGORIES: Final = ("shoes", "hats", "bags", "coats", "toys")


def events(rows: int, seed: int) -> Iterator[str]:
    """Yield the lines of a file of events, the header first."""
    dice, users = random.Random(seed), max(1, round(rows * USERS_A_ROW))
    yield "user_id,event,at,product_id,category,revenue,currency,coupon"
    for number in range(rows):
        [name] = dice.choices(shop.NAMES, shop.WEIGHTS)
        at = format_instant(shop.FIRST_MS + number * 1_000)
        revenue = f"{dice.randrange(100, 20_000) / 100}" if name == "Order Completed" else ""
        product = f"sku-{dice.randrange(500)}"
        yield f"user-{dice.randrange(users)},{name},{at},{product},{dice.choice(CATEGORIES)},{revenue},EUR,"


def products(rows: int, seed: int) -> Iterator[str]:
    """Yield the lines of a file of products, the header first."""
    dice = random.Random(seed)
    yield "sku,name,category,brand,price"
    for number in range(rows):
        price = dice.randrange(100, 20_000) / 100
        yield f"sku-{seed}-{number},Product {number},{dice.choice(CATEGORIES)},Brand {dice.randrange(50)},{price}"


def members(rows: int, seed: int) -> Iterator[str]:
    """Yield the lines of a file of users, the header first."""
    yield "user_id"
    for number in range(rows):
        yield f"user-{seed}-{number}"


def write_files(directory: Path, lines: Callable[[int, int], Iterator[str]], rows: int, files: int) -> str:
    """Write the rows into so many files of about the same size; return the URI of their directory."""
    directory.mkdir()
    for number in range(files):
        with (directory / f"{number}.csv").open("w") as file:
            share = rows // files + (number < rows % files)
            file.writelines(f"{line}\n" for line in lines(share, number))
    return directory.as_uri()


def fill_table(made: Platform, rows: int) -> None:
    """Create the table `customers` with a row a user."""
    with psycopg.connect(made.server.uri(), password=PASSWORD) as connection:
        connection.execute(
            "CREATE TABLE customers (number bigint PRIMARY KEY, user_id text NOT NULL, plan text, country text, "
            "spent numeric(10, 2), is_member boolean, signed_up_at timestamptz)"
        )
        connection.execute(
            "INSERT INTO customers SELECT number, 'user-' || number, (ARRAY['free', 'pro', 'team'])[1 + mod(number, 3)], "
            "(ARRAY['DE', 'JP', 'US', 'FR'])[1 + mod(number, 4)], mod(number * 7919, 1000000) / 100.0, mod(number, 2) = 0, "
            "timestamptz '2026-01-01' + number * interval '1 second' FROM generate_series(1, %s::bigint) AS number",
            (rows,),
        )


def requests(made: Platform, rows: int, files: int) -> Mapping[str, Callable[[], dict[str, Any]]]:
    """Return what makes the source of each import, and returns its request."""
    directory = made.directory

    def of_events() -> dict[str, Any]:
        uri = write_files(directory / "events", events, rows, files)
        return {
            "uri": uri,
            "format": "csv",
            "kind": "events",
            "user_column": "user_id",
            "event_column": "event",
            "time_column": "at",
        }

    def of_list() -> dict[str, Any]:
        uri = write_files(directory / "list", members, rows, files)
        return {"uri": uri, "format": "csv", "kind": "lists", "user_column": "user_id", "list_key": LIST}

    def of_catalog() -> dict[str, Any]:
        uri = write_files(directory / "catalog", products, rows, files)
        return {"uri": uri, "format": "csv", "kind": "catalog", "product_column": "sku"}

    def of_database() -> dict[str, Any]:
        fill_table(made, rows)
        fields = ("plan", "country", "spent", "is_member", "signed_up_at")
        source = {"user": USER, "password": PASSWORD, "table": "customers", "partition_column": "number", "partitions": files}
        return {
            "uri": f"jdbc:postgresql://127.0.0.1:{made.server.port}/postgres", "format": "jdbc", "kind": "traits",
            "user_column": "user_id", "id_column": "user_id", "columns": {field: f"traits.{field}" for field in fields},
            "jdbc": source,
        }  # fmt: skip

    return {"events": of_events, "list": of_list, "catalog": of_catalog, "database": of_database}


TOPICS: Final = {"events": "ingest.track", "list": LIST_MEMBERSHIP, "catalog": PRODUCTS, "database": "ingest.identify"}
"""The topic of each import. It has a record a row."""


def figures(rows: int, took: Took) -> dict[str, Any]:
    """Return the figures of one run; `seconds` from the start of the process to the end of the import."""
    used = {name: round(seconds / rows * 1e6, 1) for name, seconds in sorted(took.cpu_seconds.items())}
    found: dict[str, Any] = {
        "rows": rows,
        "seconds": round(took.start_seconds + took.seconds, 1),
        "start_seconds": round(took.start_seconds, 1),
        "rows_per_second": round(rows / took.seconds),
        "cpu_us_a_row": used | {"all": round(sum(took.cpu_seconds.values()) / rows * 1e6, 1)},
        "published": dict(took.published),
    }
    if rows < GOAL_ROWS:
        found["extrapolated_seconds_for_5M_rows"] = round(took.start_seconds + took.seconds * GOAL_ROWS / rows)
    return found


def measured(made: Platform, key: str, rows: int, sent: int) -> dict[str, Any]:
    """Run an import. Raises: RuntimeError unless it has read all rows, sent so many, and published a record for each of these."""
    took, counted = made.run(key)
    if counted != {"rows_done": rows, "accepted": sent, "rejected": 0} or took.published.get(TOPICS[key], 0) != sent:
        raise RuntimeError(f"{key}: of {rows:,} rows {counted}, published {dict(took.published)}")
    found = figures(rows, took)
    print(f"{key}: {found}", flush=True)
    return found


def measure(made: Platform, parts: list[str], rows: int, files: int) -> dict[str, Any]:
    """Return the figures of each import; of the table also those of the same import again."""
    found: dict[str, Any] = {}
    making = requests(made, rows, files)
    for part in parts:
        made.create({"key": part, **making[part]()})
        found[part] = measured(made, part, rows, rows)
        if part == "database":
            made.repeat(part)
            found["database_unchanged"] = measured(made, part, rows, 0)
    return found


def table(result: Mapping[str, Any]) -> Iterator[goals.Row]:
    """Yield the rows of the table. Whether a goal is met is left open if its time is extrapolated."""
    for part in (*PARTS, "database_unchanged"):
        if part not in result:
            continue
        one = result[part]
        name = part.replace("_", ", ")
        speed = f"{one['rows_per_second']:,} rows/s, {one['cpu_us_a_row']['all']} CPU-µs a row"
        yield goals.Row(f"{name}: {one['rows']:,} rows", f"{one['seconds']} s, {speed}")
        goal, what = f"<= {GOAL_SECONDS:.0f} s", f"  {GOAL_ROWS:,} rows"
        if one["rows"] >= GOAL_ROWS:
            yield goals.Row(what, f"{one['seconds']} s", goal, one["seconds"] <= GOAL_SECONDS)
        else:
            yield goals.Row(what, f"extrapolated, not measured: {one['extrapolated_seconds_for_5M_rows']} s", goal)
        if part == "database_unchanged":
            count = sum(one["published"].values())
            yield goals.Row("  records published", f"{count:,}", "0", count == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=GOAL_ROWS, help="of each import")
    parser.add_argument("--files", type=int, default=4, help="of an import of files, and parts of the table")
    parser.add_argument("--only", default=",".join(PARTS), help="the imports to measure; --write leaves the others as they were")
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_imports.json")
    asked = parser.parse_args()
    parts = [part for part in PARTS if part in asked.only.split(",")]
    rows = 20_000 if asked.small else asked.rows
    before = round(os.getloadavg()[1], 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, platform(Path(directory)) as made:
        found = measure(made, parts, rows, asked.files)
    setting = {"rows": rows, "files": asked.files, "cores": os.cpu_count(), "load_average_5m_before": before}
    result = {"benchmark": "spark_imports", **{name: setting | one for name, one in found.items()}}
    print(json.dumps(result, indent=1))
    print(goals.as_text(list(table(result))))
    if asked.write and not asked.small:
        keep("spark_imports", kept("spark_imports") | result)


if __name__ == "__main__":
    main()
