"""The figures of exports: medians of rounds, processor time of Spark alone, and the goals that each sink has."""

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
READ = {"events_per_second": 100_000, "cpu_us_an_event": 10.0}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("spark_sinks")


def figures(benchmark: Any, jvm: float = 1.0, *seconds: float, again_rows: int = 0) -> dict[str, Any]:
    cpu = {"jvm": jvm, "python_workers": 1.0, "driver": 5.0, "servers": 7.0}
    rounds = [benchmark.Ran(one, cpu, 0.5, again_rows) for one in seconds or (50.0,)]
    found: dict[str, Any] = benchmark.sink_figures(1_000_000, rounds, READ)
    return {"read_and_decode": READ, "slowest": ["90% here"], **found}


def goals(benchmark: Any, **found: dict[str, Any]) -> dict[str, bool | None]:
    return {row.what.strip(): row.met for row in benchmark.table_rows(found)}


def test_a_rate_is_the_median_and_servers_are_no_part_of_the_cost(benchmark: Any) -> None:
    found = figures(benchmark, 1.0, 40.0, 100.0, 50.0)
    assert (found["rows_per_second"], found["each_rows_per_second"]) == (20_000, [25_000, 10_000, 20_000])
    assert (found["cpu_us_a_row"], found["to_read_and_decode_by_cpu_seconds"]) == (2.0, 0.2)
    assert found["cpu_us_a_row_by_part"] == {"jvm": 1.0, "python_workers": 1.0, "driver": 5.0, "servers": 7.0}


def test_each_sink_has_its_goal(benchmark: Any) -> None:
    share = "of read and decode, by CPU seconds"
    assert goals(benchmark, parquet=figures(benchmark, 2.0))[share] is True
    assert goals(benchmark, parquet=figures(benchmark, 2.1))[share] is False
    assert goals(benchmark, postgres=figures(benchmark, 9.0)) == {
        "read and decode alone": None, "postgres: 1,000,000 rows": True, share: None, "again, without changes": True,
    }  # fmt: skip
    slow = goals(benchmark, postgres=figures(benchmark, 9.0, 50.1, again_rows=1))
    assert (slow["postgres: 1,000,000 rows"], slow["again, without changes"]) == (False, False)
    assert "of the sink, in one process" in slow


def test_an_unknown_sink_is_refused(benchmark: Any) -> None:
    assert benchmark.chosen("csv,parquet") == ("parquet", "csv")
    with pytest.raises(Exception, match="'mysql' is unknown: choose from parquet, csv"):
        benchmark.chosen("csv,mysql")
