"""The lake: size of a table's metadata and time of a commit, by the place of the Kafka position and the number of snapshots.

Three places: the summary of the snapshot (as before), a row of another Iceberg table (rejected), and a file that the snapshot
names (the lake's own code). Each commit reads the tip and appends one file. Commits are in turns, and figures are medians. The
former snapshots are not committed one by one: they are written into the metadata, as copies of a real one with other ids, times
and offsets. With the position in the summary, the figures of 10,000 snapshots are on a line through those of fewer snapshots.
Run: python benchmarks/lake_positions.py [--small] [--write]
"""

# ruff: noqa: SLF001 - the rejected places use parts of the lake's code

import argparse
import copy
import gzip
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from common.bench import keep
from pyarrow import parquet
from pyspark.sql import types

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_local.runtime import runtime_jars
from starling_spark.lakehouse.data_files import DataFile, footer_of
from starling_spark.lakehouse.fence import OFFSETS, Fence
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.positions import Position, to_text
from starling_spark.lakehouse.schema.tables import COMPRESSED, PROPERTIES
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.stores.files import put
from starling_spark.lakehouse.stores.translation import DIRECTORY
from starling_spark.session.spark import open_session

TOPICS: Final = 6
PARTITIONS: Final = 256
GOALS: Final = {"snapshots": 10_000, "metadata_mb": 12, "commit_s": 3}
POSITIONS: Final = "positions"
POSITION_SNAPSHOTS: Final = 2_520
"""Of the table of positions: commits of seven tables every ten seconds, expired every hour."""
_TEXT: Final = types.StringType()
_ROW: Final = types.StructType([types.StructField("name", _TEXT)])
_POSITION: Final = types.StructType([types.StructField(name, _TEXT) for name in ("table", "id", "offsets")])


class Bench:
    """A lake with one table for each place of the position."""

    def __init__(self, lake: Lake, before: Lake) -> None:
        self.lake = lake
        self.before = before
        self._random = random.Random(7)
        self._base = [self._random.randrange(10**9, 10**10) for _ in range(TOPICS * PARTITIONS)]
        self._commits: Mapping[str, Callable[[str], None]] = {"summary": self._summary, "table": self._table, "file": self._file}

    def position(self, number: int) -> Position:
        """Return a position after so many commits."""
        offsets = iter(self._base)
        return {
            (f"ingest.topic{topic}", partition): next(offsets) + number * 4_000 + self._random.randrange(400)
            for topic in range(TOPICS)
            for partition in range(PARTITIONS)
        }

    def made(self, place: str, snapshots: int) -> str:
        """Make a table with so many snapshots; return its name."""
        table = f"{place}_{snapshots}"
        lake = self.before if place == "summary" else self.lake
        lake.ensure(table, _ROW, (), ())
        self._commits[place](table)
        self._commits[place](table)
        lengthen(metadata_file(lake, table), snapshots, self._value(place))
        if place == "table":
            file = metadata_file(self.lake, POSITIONS)
            lengthen(file, POSITION_SNAPSHOTS, None)
        return table

    def _value(self, place: str) -> Callable[[int, str], str]:
        """Return the function from the number of a snapshot, and the property of a real one, to its own property."""
        if place == "summary":
            return lambda number, _: to_text(self.position(number))
        return lambda _, real: real.replace(real.rpartition("/")[2].split(".")[0], uuid4().hex)

    def commit(self, place: str, table: str) -> float:
        """Commit once; return the seconds."""
        began = time.perf_counter()
        self._commits[place](table)
        return time.perf_counter() - began

    def _file(self, table: str) -> None:
        tip = self.lake.tip(table)
        self.lake.append_files(table, [row_file(self.lake, table, {"name": ["a"]})], self.position(1), tip)

    def _summary(self, table: str) -> None:
        tip = self.before.tip(table)
        self._append(self.before, table, to_text(self.position(1)), tip.snapshot)

    def _table(self, table: str) -> None:
        tip, id_, position = self.lake.tip(table), uuid4().hex, self.position(1)
        row = {"table": [table], "id": [id_], "offsets": [to_text(position)]}
        loaded = self.lake._load(POSITIONS)
        loaded.newAppend().appendFile(self.lake._data_file(loaded, row_file(self.lake, POSITIONS, row))).commit()
        self.lake._read[table] = id_, position  # the driver knows what it has written
        self._append(self.lake, table, id_, tip.snapshot)

    def _append(self, lake: Lake, table: str, place: str, snapshot: int | None) -> None:
        loaded = lake._load(table)
        append = loaded.newAppend().appendFile(lake._data_file(loaded, row_file(lake, table, {"name": ["a"]})))
        append.set(OFFSETS, place).validateWith(Fence(snapshot)).commit()


def row_file(lake: Lake, table: str, row: Mapping[str, Sequence[str]]) -> DataFile:
    """Write a file of one row, as the workers do."""
    path = f"{lake.location(table)}/data/{uuid4().hex}.parquet"
    made = pa.BufferOutputStream()
    parquet.write_table(pa.table({name: pa.array(values, pa.string()) for name, values in row.items()}), made, compression="zstd")
    content = made.getvalue()
    put(DIRECTORY, path, content)
    return DataFile(table, path, [], 1, content.size, footer_of(content))


def metadata_file(lake: Lake, table: str) -> Path:
    """Return the file with the table's present metadata."""
    return Path(urlsplit(str(lake._load(table).operations().current().metadataFileLocation())).path)


def text_of(file: Path) -> bytes:
    """Return the metadata as JSON."""
    return gzip.decompress(file.read_bytes()) if ".gz." in file.name else file.read_bytes()


def lengthen(file: Path, snapshots: int, value: Callable[[int, str], str] | None) -> None:
    """Write the next version of a table's metadata, with so many snapshots before the current one.

    `value`: number of a snapshot, and the real property -> its property `starling.offsets`; None: without.
    """
    found = json.loads(text_of(file))
    last = found["snapshots"][-1]
    listed = {one["snapshot-id"]: one for one in found.get("statistics", [])}.get(last["snapshot-id"])
    random_ids, made, statistics_made, log_made, parent = random.Random(snapshots), [], [], [], None
    for number in range(1, snapshots):
        one = copy.deepcopy(last)
        one["sequence-number"], one["snapshot-id"] = number, random_ids.getrandbits(62)
        one["timestamp-ms"] = last["timestamp-ms"] - (snapshots - number) * 10_000 - random_ids.randrange(999)
        one["manifest-list"] = last["manifest-list"].rpartition("/")[0] + f"/snap-{one['snapshot-id']}-1-{uuid4()}.avro"
        one["summary"] |= {"total-records": str(number), "total-files-size": str(number * 512)}
        if parent is not None:
            one["parent-snapshot-id"] = parent
        else:
            one.pop("parent-snapshot-id", None)
        parent = one["snapshot-id"]
        if value is not None:
            one["summary"][OFFSETS] = value(number, last["summary"][OFFSETS])
        if listed is not None:
            place = {"snapshot-id": one["snapshot-id"], "statistics-path": one["summary"][OFFSETS]}
            statistics_made.append(listed | place)
        made.append(one)
        log_made.append({"timestamp-ms": one["timestamp-ms"], "snapshot-id": one["snapshot-id"]})
    last["sequence-number"] = found["last-sequence-number"] = snapshots
    last["parent-snapshot-id"] = parent
    found["snapshots"] = [*made, last]
    found["snapshot-log"] = [*log_made, {"timestamp-ms": last["timestamp-ms"], "snapshot-id": last["snapshot-id"]}]
    if listed is not None:
        found["statistics"] = [*statistics_made, listed]
    version = int(file.name.split(".")[0].removeprefix("v")) + 1
    text = json.dumps(found, separators=(",", ":")).encode()
    after = file.with_name(f"v{version}.{file.name.partition('.')[2]}")
    after.write_bytes(gzip.compress(text) if ".gz." in file.name else text)
    (file.parent / "version-hint.text").write_text(str(version))
    (file.parent / ".version-hint.text.crc").unlink()


def figures(bench: Bench, place: str, table: str, seconds: Sequence[float]) -> dict[str, Any]:
    """Return the figures of one table."""
    lake = bench.before if place == "summary" else bench.lake
    file = metadata_file(lake, table)
    found = {
        "metadata_bytes": file.stat().st_size,
        "metadata_text_bytes": len(text_of(file)),
        "commit_s": round(statistics.median(seconds), 3),
    }
    if place == "file":
        written = [one.stat().st_size for one in file.parent.glob("*.position.puffin")]
        found["position_file_bytes"] = round(statistics.median(written))
    return found


def extrapolated(found: Mapping[str, Mapping[str, Mapping[str, Any]]], snapshots: int) -> dict[str, Any]:
    """Return the figures of the position in the summary at so many snapshots, on the line through the two measured sizes."""
    (less, first), (more, second) = ((int(size), one["summary"]) for size, one in found.items() if "summary" in one)
    result = {}
    for name in ("metadata_bytes", "commit_s"):
        slope = (second[name] - first[name]) / (more - less)
        result[name] = round(second[name] + slope * (snapshots - more), 1)
    return result


def measure(directory: Path, sizes: Sequence[int], most_in_summaries: int, rounds: int) -> dict[str, Any]:
    """Commit to each table in turn. `most_in_summaries`: snapshots of the largest table with positions in its summaries."""
    settings = LakeSettings(
        kafka=Kafka(brokers="127.0.0.1:1"), registry=SchemaRegistry(url="http://127.0.0.1:1"), http=Http(port=1),
        instance_id="benchmark", checkpoint_dir=str(directory), lake_warehouse=str(directory / "warehouse"),
        spark_jars=os.pathsep.join(str(jar) for jar in (*runtime_jars("spark"), *runtime_jars("iceberg"))),
    )  # fmt: skip
    spark = open_session("benchmark", settings, iceberg_config(settings))
    try:
        bench = Bench(Lake(spark, "after", {**PROPERTIES, **COMPRESSED}), Lake(spark, "before"))
        bench.lake.ensure(POSITIONS, _POSITION, (), ())
        bench.lake.ensure("warm", _ROW, (), ())
        for _ in range(5):
            bench.commit("file", "warm")
        found: dict[str, Any] = {}
        for size in sizes:
            places = ["summary", "table", "file"] if size <= most_in_summaries else ["table", "file"]
            tables = {place: bench.made(place, size) for place in places}
            seconds: dict[str, list[float]] = {place: [] for place in places}
            for number in range(rounds + 1):
                for place in places:
                    taken = bench.commit(place, tables[place])
                    if number:  # the first round warms up
                        seconds[place].append(taken)
            found[str(size)] = {place: figures(bench, place, tables[place], seconds[place]) for place in places}
            print(size, json.dumps(found[str(size)]), flush=True)
        text = len(to_text(bench.position(1)))
    finally:
        spark.stop()
    return {
        "topics": TOPICS,
        "partitions": PARTITIONS,
        "position_text_bytes": text,
        "rounds": rounds,
        "goals": GOALS,
        "snapshots": found,
        "summary_extrapolated": extrapolated(found, GOALS["snapshots"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/lake_positions.json")
    asked = parser.parse_args()
    sizes, most = ((20, 50), 50) if asked.small else ((200, 800, 10_000), 800)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        found = measure(Path(scratch), sizes, most, 2 if asked.small else asked.rounds)
    load = {"load_average_5m": round(os.getloadavg()[1], 1)}
    result = {"benchmark": "lake_positions", "cores": os.cpu_count(), **load, **found}
    print(json.dumps(result, indent=1))
    if asked.write and not asked.small:
        keep("lake_positions", result)


if __name__ == "__main__":
    main()
