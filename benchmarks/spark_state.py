"""State of Spark's stateful processors: reading and writing one person's state by the public API, pipelined, and with a copy.

The processor of a streaming query reads and writes the states of randomly chosen people, in turns by the public client of
PySpark, by the pipelined one of the computed traits, and by that one behind a copy on the local disk. The states are in one map
state in RocksDB as the job has it. A round writes what it read, so the copy has all states in every round. Each figure is the
median of the rounds: CPU-µs a person in the Python worker and in the JVM while the calls run, and of the whole micro-batch with
output and commit, less those of an empty one. Run: python benchmarks/spark_state.py [--small] [--write]
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd
import psutil
from common.bench import keep
from common.spark_cpu import Spent
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_local.runtime import runtime_jars
from starling_spark.jobs.profiles.query.bulk_states import BulkStates, PipelinedStates, PublicStates
from starling_spark.jobs.profiles.query.local_states import CopiedStates, LocalStates
from starling_spark.session.settings import SparkSettings
from starling_spark.session.spark import open_session, session_config

COPY_MEGABYTES: Final = 8_192
STATE_BYTES: Final = 1_700
"""The median state of a person with 50 definitions, of spark_profiles.json."""
STORES: Final = (10_000, 100_000, 1_000_000)
FILL: Final = 25_000
CLIENTS: Final = ("public", "pipelined", "copied")
GOAL_CPU_US: Final = 30
GOAL_TIMES: Final = 3
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_NO_OPTIMISING: Final = " -XX:TieredStopAtLevel=1"
_COMMAND: Final = "bucket int, client string, people long, touched int, seed int"
_TOOK: Final = {
    "client": "string", "touched": "int", "wrong": "int",
    "read_s": "double", "write_s": "double", "read_cpu_s": "double", "write_cpu_s": "double", "jvm_cpu_s": "double",
}  # fmt: skip


class Touched(NamedTuple):
    """A round: seconds of the calls, CPU seconds while they ran, and of the JVM and its workers over the whole micro-batch."""

    touched: int
    read_s: float
    write_s: float
    read_cpu_s: float
    write_cpu_s: float
    jvm_cpu_s: float
    batch_cpu_s: float


class Touching(StatefulProcessor):
    """Reads and writes the states that a command names. `jvm`: the process id of the JVM. `copies`: the directory of the copy."""

    def __init__(self, jvm: int, copies: str) -> None:
        self._jvm = jvm
        self._copies = Path(copies)

    def init(self, handle: StatefulProcessorHandle) -> None:
        state = handle.getMapState("users", "user string", "state binary")
        self._clients: dict[str, BulkStates] = {"public": PublicStates(state), "pipelined": PipelinedStates(state)}
        self._version = handle.getValueState("version", "version string")
        self._bytes = random.Random(1).randbytes(1 << 20)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        for frame in rows:
            for command in frame.itertuples():
                yield pd.DataFrame([self._touch(command)], columns=list(_TOOK))

    def _touch(self, command: Any) -> tuple[Any, ...]:
        if command.client == "fill":
            people: Sequence[int] = range(command.people, command.people + command.touched)
            with self._client("copied") as client:
                client.write({_key(person): self._state(person) for person in people})
            return ("fill", command.touched, 0, *(0.0,) * 5)
        with self._client(command.client) as client:
            return self._measure(command, client)

    @contextmanager
    def _client(self, name: str) -> Iterator[BulkStates]:
        if name != "copied":
            yield self._clients[name]
            return
        found = self._version.get()
        copy = LocalStates(self._copies, "" if found is None else found[0], COPY_MEGABYTES)
        try:
            yield CopiedStates(self._clients["pipelined"], copy)
            self._version.update((copy.seal(),))
        finally:
            copy.close()

    def _measure(self, command: Any, client: BulkStates) -> tuple[Any, ...]:
        people = random.Random(command.seed).sample(range(command.people), command.touched)
        keys = [_key(person) for person in people]
        jvm = psutil.Process(self._jvm)
        began = (time.perf_counter(), time.thread_time(), _cpu(jvm))
        found = client.read(keys)
        read = (time.perf_counter(), time.thread_time())
        client.write(dict(zip(keys, [state or b"" for state in found], strict=True)))
        written = (time.perf_counter(), time.thread_time(), _cpu(jvm))
        wrong = sum(state != self._state(person) for person, state in zip(people, found, strict=True))
        return (
            command.client,
            len(keys),
            wrong,
            read[0] - began[0],
            written[0] - read[0],
            read[1] - began[1],
            written[1] - read[1],
            written[2] - began[2],
        )

    def _state(self, person: int) -> bytes:
        at = person * 31 % (len(self._bytes) - STATE_BYTES)
        return self._bytes[at : at + STATE_BYTES - 8] + person.to_bytes(8, "big")

    def close(self) -> None:
        pass


def _ddl(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in fields.items())


def _key(person: int) -> str:
    return f"default/user-{person:08}"


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class Query:
    """A streaming query of commands: a file is a micro-batch."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._commands = directory / "commands"
        self._commands.mkdir(parents=True)
        self._number = 0
        self._rows: list[Any] = []
        self._jvm = next(child for child in psutil.Process().children() if any("SparkSubmit" in word for word in child.cmdline()))
        self._query = (
            spark.readStream.schema(_COMMAND)
            .option("maxFilesPerTrigger", 1)
            .csv(str(self._commands))
            .groupBy("bucket")
            .transformWithStateInPandas(Touching(self._jvm.pid, str(directory / "copy")), _ddl(_TOOK), "Update", "None")
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(directory / "checkpoint"))
            .foreachBatch(self._take)
            .start()
        )
        self._closing = ExitStack()
        self._spent = self._closing.enter_context(Spent(self._jvm.pid))

    def _take(self, rows: DataFrame, _batch: int) -> None:
        self._rows = rows.collect()

    def run(self, client: str, people: int, touched: int) -> Touched:
        """Run one micro-batch. Raises: StreamingQueryException, RuntimeError if a state differs from what was written."""
        self._number += 1
        file = self._commands / f"{self._number}.csv"
        written = file.with_name(f".{file.name}")
        written.write_text(f"0,{client},{people},{touched},{self._number}\n")
        cpu = self._spent.seconds()
        written.rename(file)
        self._query.processAllAvailable()
        cpu = self._spent.seconds() - cpu
        [row] = self._rows
        if row.wrong or row.touched != touched:
            raise RuntimeError(f"{row.wrong} of {row.touched} states are not as they were written: {client}")
        return Touched(touched, row.read_s, row.write_s, row.read_cpu_s, row.write_cpu_s, row.jvm_cpu_s, cpu)

    def stop(self) -> None:
        self._closing.close()
        self._query.stop()


def measure(spark: SparkSession, directory: Path, people: int, touched: int, rounds: int) -> dict[str, Any]:
    """Both clients in turns over one store; the first round of each warms up."""
    query = Query(spark, directory)
    try:
        for first in range(0, people, FILL):
            query.run("fill", first, min(FILL, people - first))
        found: dict[str, list[Touched]] = {client: [] for client in CLIENTS}
        idle = [query.run("pipelined", people, 1) for _ in range(3)]
        for number in range(rounds + 1):
            for client in CLIENTS:
                found[client].append(query.run(client, people, min(touched, people)))
                print(f"{people} people, round {number}: {client} {found[client][-1]}", flush=True)
    finally:
        query.stop()
    empty_batch = statistics.median(one.batch_cpu_s for one in idle)
    figures = {client: figures_of(ran[1:], empty_batch) for client, ran in found.items()}
    return figures | {
        "empty_batch_cpu_s": round(empty_batch, 2),
        **{
            f"{client}_times_by_{by}": round(figures["public"][f"{by}_us"] / figures[client][f"{by}_us"], 2)
            for client in CLIENTS[1:]
            for by in ("cpu", "wall")
        },
    }


def figures_of(ran: list[Touched], empty_batch: float) -> dict[str, float]:
    """Microseconds a person, medians. `batch_cpu_us`: of the whole micro-batch, less an empty one."""

    def median(seconds: Any) -> float:
        return round(float(statistics.median(seconds(one) / one.touched for one in ran)) * 1e6, 1)

    return {
        "wall_us": median(lambda one: one.read_s + one.write_s),
        "wall_read_us": median(lambda one: one.read_s),
        "wall_write_us": median(lambda one: one.write_s),
        "python_cpu_us": median(lambda one: one.read_cpu_s + one.write_cpu_s),
        "jvm_cpu_us": median(lambda one: one.jvm_cpu_s),
        "cpu_us": median(lambda one: one.read_cpu_s + one.write_cpu_s + one.jvm_cpu_s),
        "batch_cpu_us": median(lambda one: one.batch_cpu_s - empty_batch),
    }


def session(directory: Path, more: Mapping[str, str], *, optimising: bool) -> SparkSession:
    """Return the session of the jobs. `optimising`: with the compiler that a cluster's JVM has, and the local one does not."""
    settings = SparkSettings(
        kafka=Kafka(brokers="127.0.0.1:1"),
        registry=SchemaRegistry(url="http://127.0.0.1:1"),
        http=Http(port=1),
        instance_id="benchmark",
        spark_jars=os.pathsep.join(str(jar) for jar in runtime_jars("spark")),
        spark_state_partitions=1,
        checkpoint_dir=str(directory),
    )
    options = session_config(settings)[_JAVA_OPTIONS]
    if optimising:
        options = options.replace(_NO_OPTIMISING, "")
    return open_session("benchmark", settings, {_JAVA_OPTIONS: options, **more})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=STORES, help="people in the store")
    parser.add_argument("--touched", type=int, default=10_000, help="people whose state is read and written in a micro-batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of Spark beside those of the jobs")
    parser.add_argument("--local", action="store_true", help="without the optimising compiler, as jobs on one machine run")
    parser.add_argument("--small", action="store_true", help="so light that it is over in a minute; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_state.json")
    asked = parser.parse_args()
    if asked.small:
        asked.people, asked.touched, asked.rounds = (2_000,), 1_000, 1
    before = os.getloadavg()
    stores: dict[str, Any] = {}
    more = dict(setting.split("=", 1) for setting in asked.set)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        spark = session(Path(scratch), more, optimising=not asked.local)
        try:
            for people in asked.people:
                stores[str(people)] = measure(spark, Path(scratch) / str(people), people, asked.touched, asked.rounds)
        finally:
            spark.stop()
    result = {
        "benchmark": "spark_state",
        "cores": 2,
        "state_bytes": STATE_BYTES,
        "touched": asked.touched,
        "rounds": asked.rounds,
        "optimising_compiler": not asked.local,
        "settings": more,
        "load_average_5m_before": round(before[1], 1),
        "load_average_5m": round(os.getloadavg()[1], 1),
        "goals": {"cpu_us": GOAL_CPU_US, "times": GOAL_TIMES},
        "people": stores,
    }
    print(json.dumps(result, indent=1))
    if asked.write:
        keep("spark_state", result)


if __name__ == "__main__":
    main()
