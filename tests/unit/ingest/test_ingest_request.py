"""Headers, query and packed bodies."""

import base64
import gzip
import os
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.outcome import Done, Outcome, Refused
from starling_ingest.requests import request
from starling_ingest.requests.identifiers import Identifiers
from starling_ingest.requests.request import MAX_BODY_BYTES

IDS = Identifiers()


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def code(outcome: Outcome[bytes]) -> str:
    assert isinstance(outcome, Refused)
    return outcome.code


@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ({"authorization": basic("a:"), "x-write-key": "b"}, "writeKey=c", "a"),
        ({"authorization": basic("a:secret")}, "", "a"),
        ({"authorization": basic("id:secret"), "x-write-key": "b"}, "", "id:secret"),
        ({"authorization": basic("id:other")}, "", "id"),
        ({"authorization": basic("a")}, "", "a"),
        ({"authorization": "basic " + basic("a:")[6:]}, "", "a"),
        ({"authorization": basic(":"), "x-write-key": "b"}, "writeKey=c", "b"),
        ({"authorization": "Bearer xyz", "x-write-key": "b"}, "", "b"),
        ({"authorization": "Basic !!!"}, "writeKey=c", "c"),
        ({"authorization": "Basic " + base64.b64encode(b"\xff\xfe:").decode()}, "writeKey=c", "c"),
        ({"x-write-key": "id:secret"}, "", "id:secret"),
        ({}, "a=1&writeKey=c%20d", "c d"),
        ({}, "writeKey=", None),
        ({}, "", None),
    ],
)
def test_the_key_is_looked_for_in_the_order_of_the_contract(headers: dict[str, str], query: str, key: str | None) -> None:
    assert request.write_key(headers, query, {"id:secret"}) == key


@pytest.mark.parametrize("asked", ["authorization", "anonymousid,sentat", "AnonymousId, Rsa-Retry-Attempt", "x-a ,\tx-b"])
def test_header_names_that_a_preflight_asks_for(asked: str) -> None:
    assert request.requested_headers({"access-control-request-headers": asked}) == asked


@pytest.mark.parametrize("asked", [None, "", ",", "a,", "a b", "a:b", "a\r\nb", "é", "a," * 2000 + "a"])
def test_what_are_no_header_names_is_not_repeated(asked: str | None) -> None:
    assert request.requested_headers({} if asked is None else {"access-control-request-headers": asked}) is None


@pytest.mark.parametrize("sent", ["abc-123", "a" * 100, "req:1.2_3"])
def test_a_sane_correlation_id_is_taken_over(sent: str) -> None:
    assert request.correlation_id({"x-correlation-id": sent}, IDS) == sent


@pytest.mark.parametrize("sent", ["", "a" * 101, 'a"b', "a b", "-a", "a\nb", "é"])
def test_any_other_is_replaced(sent: str) -> None:
    made = request.correlation_id({"x-correlation-id": sent}, IDS)
    assert uuid.UUID(made).version == 4


def test_a_valid_trace_is_taken_over_and_any_other_replaced() -> None:
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert request.traceparent({"traceparent": good}, IDS) == good
    for bad in ("", good.upper(), "ff" + good[2:], good.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), good[:-1]):
        made = request.traceparent({"traceparent": bad}, IDS)
        assert made != bad
        assert request.traceparent({"traceparent": made}, IDS) == made


def test_identifiers_never_come_twice() -> None:
    made = [IDS.uuid() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert all(uuid.UUID(text).version == 4 and str(uuid.UUID(text)) == text for text in made)


@given(st.binary(max_size=2000), st.sampled_from(["gzip", "GZIP", "x-gzip", " gzip "]))
def test_what_was_packed_comes_out(body: bytes, encoding: str) -> None:
    assert request.unpack(gzip.compress(body, mtime=0), encoding) == Done(body)


def test_members_one_after_another_are_one_body() -> None:
    assert request.unpack(gzip.compress(b"ab", mtime=0) + gzip.compress(b"") + gzip.compress(b"c"), "gzip") == Done(b"abc")


@pytest.mark.parametrize("encoding", [None, "", "identity"])
def test_a_plain_body_is_taken_up_to_the_limit(encoding: str | None) -> None:
    assert request.unpack(b"x" * MAX_BODY_BYTES, encoding) == Done(b"x" * MAX_BODY_BYTES)
    assert code(request.unpack(b"x" * (MAX_BODY_BYTES + 1), encoding)) == "body_too_large"


def test_a_packed_body_is_taken_up_to_the_same_limit() -> None:
    whole = os.urandom(MAX_BODY_BYTES)
    packed = gzip.compress(whole, mtime=0)
    assert len(packed) <= request.MAX_WIRE_BYTES
    assert request.unpack(packed, "gzip") == Done(whole)
    assert code(request.unpack(gzip.compress(whole + b"x", mtime=0), "gzip")) == "body_too_large"


def test_a_bomb_is_stopped_at_the_limit() -> None:
    small = gzip.compress(b"\0" * 20_000_000, mtime=0)
    assert len(small) < 21_000
    assert code(request.unpack(small, "gzip")) == "body_too_large"
    many = gzip.compress(b"\0" * MAX_BODY_BYTES, mtime=0) + gzip.compress(b"\0")
    assert code(request.unpack(many, "gzip")) == "body_too_large"


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", gzip.compress(b"abc", mtime=0)[:-4], gzip.compress(b"abc", mtime=0)[:5], gzip.compress(b"abc", mtime=0) + b"junk"],
)
def test_a_body_that_is_no_gzip(body: bytes) -> None:
    assert code(request.unpack(body, "gzip")) == "bad_gzip"


def test_a_damaged_body_is_found_by_its_check_sum() -> None:
    packed = bytearray(gzip.compress(b"abc" * 100, mtime=0))
    packed[-6] ^= 1
    assert code(request.unpack(bytes(packed), "gzip")) == "bad_gzip"


def test_an_encoding_that_is_not_known() -> None:
    assert code(request.unpack(b"{}", "br")) == "unsupported_encoding"
    assert code(request.unpack(b"{}", "gzip, gzip")) == "unsupported_encoding"


@pytest.mark.parametrize(
    ("host", "kept"), [("a.example:8080", "a.example:8080"), ("[::1]:80", "[::1]:80"), ('evil/"x', None), ("", None)]
)
def test_only_a_plain_host_is_repeated(host: str, kept: str | None) -> None:
    assert request.host({"host": host}, None) == kept
