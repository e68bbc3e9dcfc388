"""A new trace context is one that other tools can read."""

import re

from starling_common.headers import header, new_traceparent, record_headers


def test_a_new_trace_has_the_form_of_the_standard_and_is_new() -> None:
    made = {new_traceparent() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", one) for one in made)


def test_a_trace_that_is_given_goes_on() -> None:
    assert header(record_headers("c", "segmenter", "00-a-b-01"), "traceparent") == "00-a-b-01"
    assert header(record_headers("c", "segmenter"), "traceparent") != header(record_headers("c", "segmenter"), "traceparent")
