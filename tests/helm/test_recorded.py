"""Scrapes become series: one value a scrape, also where a series begins later or ends."""

from tests.helm.recorded import PLANTED_DOWN, Recording, metrics_of

TEXT = """# HELP starling_stream_lag_records Records.
# TYPE starling_stream_lag_records gauge
starling_stream_lag_records{partition="0",topic="a \\"b\\""} %s
# TYPE starling_stream_commit_seconds histogram
starling_stream_commit_seconds_bucket{le="0.1"} 3.0
starling_stream_commit_seconds_bucket{le="+Inf"} 4.0
starling_stream_commit_seconds_count 4.0
starling_stream_commit_seconds_sum 1e-05
# TYPE starling_stream_refused_total counter
python_gc_objects_collected_total{generation="0"} 1.0
"""
ONE, TWO = ("starling-x", "a:1"), ("starling-x", "b:1")


def test_each_series_has_a_value_for_each_scrape() -> None:
    recording = Recording()
    recording.add({ONE: TEXT % "NaN"})
    recording.add({ONE: TEXT % 7, TWO: TEXT % 8})
    recording.add({TWO: TEXT % 9})
    names = {"starling_stream_lag_records", "starling_stream_commit_seconds"}
    assert recording.missing(names) == set()
    assert recording.at == "2m"
    values = {one["series"]: one["values"] for one in recording.series(names)}
    assert values['starling_stream_lag_records{instance="a:1",job="starling-x",partition="0",topic="a \\"b\\""}'] == "NaN 7.0 _"
    assert values['starling_stream_lag_records{instance="b:1",job="starling-x",partition="0",topic="a \\"b\\""}'] == "_ 8.0 9.0"
    assert values['up{instance="b:1",job="starling-x"}'] == "_ 1.0 1.0"
    assert values['starling_stream_commit_seconds_sum{instance="a:1",job="starling-x"}'] == "1e-05 1e-05 _"
    assert not [series for series in values if series.startswith("python_")]
    assert PLANTED_DOWN["series"] in values


def test_a_metric_without_a_sample_is_declared_with_its_labels() -> None:
    recording = Recording()
    recording.add({ONE: TEXT % 1})
    names = {"starling_stream_refused_total", "starling_stream_commit_seconds", "starling_spark_query_batch_seconds"}
    assert recording.missing(names) == {"starling_stream_refused_total", "starling_spark_query_batch_seconds"}
    declared = [one["series"] for one in recording.series(names) if "declared" in one["series"]]
    assert 'starling_stream_refused_total{job="starling-declared",instance="declared",code="x"}' in declared
    assert any(series.startswith("starling_spark_query_batch_seconds_bucket{") and 'le="+Inf"' in series for series in declared)


def test_the_metrics_of_a_query_are_those_of_the_catalogue() -> None:
    query = "sum by (le) (rate(starling_stream_commit_seconds_bucket[5m])) / sum(starling_ingest_requests_total)"
    assert metrics_of(query) == {"starling_stream_commit_seconds", "starling_ingest_requests_total"}
