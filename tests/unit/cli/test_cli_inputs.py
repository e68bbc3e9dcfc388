from pathlib import Path

import pytest

from starling_cli.catalog import product_of, products
from starling_cli.commands.flow import parse_seconds
from starling_cli.stream_clock import parse_point
from starling_local.errors import NotPossible


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("5", 5.0), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "soon", "inf", "nan"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(NotPossible, match="write a duration such as 60s"):
        parse_seconds(text)


def test_an_instant_is_iso_or_epoch_milliseconds() -> None:
    assert parse_point("1998-07-01T00:00:00Z") == parse_point("899251200000") == parse_point("1998-07-01") == 899_251_200_000


@pytest.mark.parametrize("text", ["tomorrow", "-1", "999999999999999999", ""])
def test_other_instants_are_refused(text: str) -> None:
    with pytest.raises(NotPossible):
        parse_point(text)


def test_a_product_row_is_typed() -> None:
    row = {"product_id": "cd-1", "category": "music", "price": "9.5", "brand": "", "name": None}
    assert product_of(row) == {"product_id": "cd-1", "price": 9.5, "category": "music", "brand": None, "name": None}


@pytest.mark.parametrize(
    ("row", "fault"), [({"price": "1"}, "product_id is missing"), ({"product_id": "1", "colour": "x"}, "unknown column colour")]
)
def test_a_bad_product_is_refused(row: dict[str, str], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        product_of(row)


def test_products_of_both_formats(tmp_path: Path) -> None:
    table, lines = tmp_path / "p.csv", tmp_path / "p.jsonl"
    table.write_text("product_id,price\na,1\nb,2.5\n")
    lines.write_text('{"product_id": "a", "price": 1}\n{"product_id": "b", "price": 2.5}\n')
    assert list(products(table)) == list(products(lines))


def test_the_wrong_product_is_counted_out(tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text("product_id,price\na,1\nb,cheap\n")
    with pytest.raises(NotPossible, match="product 2: could not convert"):
        list(products(table))
