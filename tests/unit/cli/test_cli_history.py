import json

import pytest

from starling_cli.history import body_of, header_errors, item_of_json, item_of_row, value_of_cell, with_message_id
from starling_common.outcome import Done, Refused

HEADER = ["userId", "event", "timestamp", "properties.revenue", "properties.gift", "context.app.version", "properties.sku"]


def row(line: str) -> object:
    return item_of_row(HEADER, line)


def test_a_row_becomes_a_tracked_item() -> None:
    assert row("17,Order Completed,1997-01-12T00:00:00Z,29.33,true,2.0.0,007") == Done(
        {
            "type": "track",
            "userId": "17",
            "event": "Order Completed",
            "timestamp": "1997-01-12T00:00:00Z",
            "properties": {"revenue": 29.33, "gift": True, "sku": "007"},
            "context": {"app": {"version": "2.0.0"}},
        }
    )


def test_an_empty_cell_is_a_missing_value() -> None:
    assert row("17,Order Completed,,,,,") == Done({"type": "track", "userId": "17", "event": "Order Completed"})


def test_quotes_are_csvs() -> None:
    assert row('17,"Order, Completed",,,,,') == Done({"type": "track", "userId": "17", "event": "Order, Completed"})


def test_a_row_with_too_few_cells_is_refused() -> None:
    assert row("17,Order") == Refused("wrong_columns", "2 cells under 7 columns")


@pytest.mark.parametrize(
    ("cell", "value"),
    [("5", 5), ("-1.5e3", -1500.0), ("true", True), ("007", "007"), ("1e5x", "1e5x"), ("NaN", "NaN"), ("Infinity", "Infinity")],
)
def test_cells_are_typed_as_json_types_them(cell: str, value: object) -> None:
    found = value_of_cell(cell)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (["userId", "colour"], "unknown column 'colour'"),
        (["userId", "properties"], "needs a field, such as"),
        (["event"], "userId or anonymousId"),
        (["userId", "context.a", "context.a.b"], "is a value, but 'context.a.b' is a field inside it"),
        (["userId", "event", "event"], "'event' occurs twice"),
    ],
)
def test_an_invalid_header_is_reported(header: list[str], fault: str) -> None:
    assert fault in "; ".join(header_errors(header))


def test_a_good_header_has_no_faults() -> None:
    assert header_errors(HEADER) == []


def test_json_lines_are_taken_as_they_are() -> None:
    assert item_of_json('{"type": "track", "userId": "1"}') == Done({"type": "track", "userId": "1"})


@pytest.mark.parametrize(("line", "code"), [("{", "not_json"), ("[1]", "not_an_object"), ('{"a": NaN}', "not_json")])
def test_other_lines_are_refused(line: str, code: str) -> None:
    outcome = item_of_json(line)
    assert isinstance(outcome, Refused)
    assert outcome.code == code


def test_a_message_id_depends_on_the_line_and_its_place_only() -> None:
    first = with_message_id({}, b"line", 10)
    assert first == with_message_id({}, b"line", 10)
    assert first != with_message_id({}, b"line", 20)
    assert first != with_message_id({}, b"other", 10)
    assert with_message_id({"messageId": "mine"}, b"line", 10) == {"messageId": "mine"}


def test_the_body_is_a_batch() -> None:
    assert json.loads(body_of([{"a": "é"}])) == {"batch": [{"a": "é"}]}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param('{"userId": "a", "event": "\\ud83d"}', "not_unicode", id="half of a surrogate pair"),
        pytest.param('{"userId": "a", "properties": {"v": 1e400}}', "not_json", id="a number that no double holds"),
        pytest.param('{"v": ' + "[" * 100_000 + "]" * 100_000 + "}", "too_deep", id="deeper than the parser of JSON"),
        pytest.param('{"v": ' + "[" * 150 + "]" * 150 + "}", "too_deep", id="deeper than the bound"),
    ],
)
def test_a_line_that_would_spoil_its_whole_batch_is_refused(line: str, code: str) -> None:
    refused = item_of_json(line)
    assert isinstance(refused, Refused)
    assert refused.code == code


def test_a_whole_surrogate_pair_and_many_shallow_objects_are_items() -> None:
    pair = item_of_json('{"userId": "a", "event": "\\ud83d\\ude00"}')
    wide = item_of_json('{"userId": "a", "properties": {"v": [' + ", ".join(["{}"] * 300) + "]}}")
    assert isinstance(pair, Done)
    assert isinstance(wide, Done)
    assert body_of([pair.value, wide.value]).decode().count("😀") == 1


def test_a_field_beyond_the_limit_of_csv_is_refused() -> None:
    refused = item_of_row(["userId", "event"], "a," + "x" * 140_000)
    assert isinstance(refused, Refused)
    assert refused.code == "not_csv"


@pytest.mark.parametrize("cell", ["1e400", "-1e400", "[" * 100_000])
def test_a_cell_that_is_no_finite_number_stays_text(cell: str) -> None:
    assert value_of_cell(cell) == cell
