"""Uploaded lists: what an upload may look like, and that the topic and the table never drift apart."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_api.http.errors import BadRequest, ResourceBusy, TooLarge
from starling_api.http.pagination import PageOf
from starling_api.lists import lists as lists_module
from starling_api.lists import uploads
from starling_api.lists.uploads import count_ids, json_users, read_ids
from starling_common.kafka.clients import BrokerUnavailable
from starling_segments import DefinitionRefused
from tests.unit.api.memory import AUTHOR, World


def ids(body: str | bytes, *, as_csv: bool = False) -> list[str]:
    file = io.BytesIO(body.encode() if isinstance(body, str) else body)
    number = count_ids(file, as_csv=as_csv)
    found = list(read_ids(file, as_csv=as_csv))
    assert len(found) == number
    return found


def on_list(world: World, key: str = "vips") -> set[str]:
    return {user for _, k, user in world.list_store.kept if k == key}


def published(world: World) -> dict[str, bool]:
    """Return user -> whether the last record of the topic has the user on the list."""
    return {user: one.on_list for one in world.list_changes for user in one.users}


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda text: len(text.encode("utf-8", "ignore")) > 0)), st.integers(1, 9))
def test_streamed_json_equals_decoded_json(users: list[str], piece: int) -> None:
    body = json.dumps({"users": users}, indent=piece % 3, ensure_ascii=piece % 2 == 0).encode()
    assert list(json_users(_Pieces(body, piece))) == users


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_half_of_a_surrogate_pair_is_no_other_character(piece: int) -> None:
    body = b'{"users": ["ada", "\\ud83d\\ude00", "\\uD800\\u0041"]}'
    assert list(json_users(_Pieces(body, piece))) == ["ada", "😀", "\ud800A"]


def test_a_number_that_no_decimal_can_hold_is_refused() -> None:
    with pytest.raises(BadRequest, match="JSON"):
        list(json_users(io.BytesIO(b'{"users": [1e9999999999999999999]}')))


class _Pieces(io.BytesIO):
    """A file that is read in small pieces."""

    def __init__(self, body: bytes, most: int) -> None:
        super().__init__(body)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(self._most, size) if size and size > 0 else size)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("ada\nbob\n", ["ada", "bob"]),
        ("\ufeffada\r\n\r\n bob ", ["ada", "bob"]),
        ('"a,b"\n"my ""hi"""', ["a,b", 'my "hi"']),
        ("", []),
    ],
)
def test_csv_has_one_id_in_each_row(body: str, found: list[str]) -> None:
    assert ids(body, as_csv=True) == found


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ("[]", ""),
        ('"ada"', ""),
        ('{"people": []}', ""),
        ('{"users": "ada"}', "/users"),
        ('{"users": ["ada", 1]}', "/users/1"),
        ('{"users": ["ada", "", "bob"]}', "/users/1"),
        ('{"users": ["\\ud800"]}', "/users/0"),
        ('{"users": ["ada", "\\uD800\\u0041"]}', "/users/1"),
        ('{"users": ["ada", {"id": ["bob"]}, []]}', "/users/1"),
        ("{}", ""),
        ("\ufeff[]", ""),
        (json.dumps({"users": ["x" * 1025]}), "/users/0"),
    ],
)
def test_another_structure_is_refused_with_its_pointer(body: str, pointer: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        ids(body)
    assert refused.value.errors[0].pointer == pointer


@pytest.mark.parametrize(
    "body",
    [
        "", "{", '{"users": ["ada"', '{"users": ["ada" "bob"]}', '{"users": []} x', '{"users": [], "a": 1}',
        b'{"users": ["\xff"]}', "nonsense", '{"users": [ada]}',
    ],
)  # fmt: skip
def test_invalid_json_is_refused(body: str | bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        ids(body)
    assert refused.value.code == "not_json"


@pytest.mark.parametrize("body", [b"ada,bob\n", b"\xff\n", b'"ada\n'])
def test_invalid_csv_is_refused(body: bytes) -> None:
    with pytest.raises((BadRequest, DefinitionRefused)):
        ids(body, as_csv=True)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"ada\nbob,eve\n", "row/2"),
        (b"ada\n\n\n" + b"x" * 1025, "row/4"),
        (b"ada\nbob\n\xff\xfe\n", "row 3: "),
        (b'ada\n"bob" x\n', "row 2: "),
    ],
)
def test_a_refused_csv_names_its_row(body: bytes, named: str) -> None:
    with pytest.raises((BadRequest, DefinitionRefused)) as refused:
        ids(body, as_csv=True)
    faults = getattr(refused.value, "faults", ())
    assert named in [fault.pointer for fault in faults] or str(refused.value).startswith(named)


def test_errors_are_reported_together_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        ids(json.dumps({"users": ["", "ada", 7]}))
    assert [fault.pointer for fault in refused.value.errors] == ["/users/0", "/users/2"]
    monkeypatch.setattr(uploads, "MAX_IDS", 3)
    assert len(ids("a\nb\nc", as_csv=True)) == 3
    with pytest.raises(TooLarge):
        ids("a\nb\nc\nd", as_csv=True)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_module, "CHUNK", 2)


def test_topic_and_table_have_the_same_members() -> None:
    world = World()
    assert world.lists.replace(AUTHOR, "vips", iter(["a", "b", "c", "dd", "ee"])) == 5
    world.micros += 1
    assert world.lists.add(AUTHOR, "vips", ["f", "a"]) == 2
    assert world.lists.remove(AUTHOR, "vips", ["b", "unknown"]) == 2
    world.micros += 1
    world.lists.replace(AUTHOR, "vips", ["c", "new", "f"])
    assert on_list(world) == {"c", "new", "f"} == {user for user, is_on in published(world).items() if is_on}
    assert max(len(one.users) for one in world.list_changes) == 2  # never more in memory
    world.micros += 1
    world.lists.replace(AUTHOR, "vips", [])
    assert on_list(world) == set()
    assert not any(published(world).values())


def test_a_repetition_completes_an_interrupted_upload() -> None:
    world = World()
    world.lists.replace(AUTHOR, "vips", ["a", "b", "c"])

    def broken() -> Any:
        yield from ("c", "d", "e", "f")
        world.broker_is_down = True
        yield from ("g", "h")

    world.micros += 1
    with pytest.raises(BrokerUnavailable):
        world.lists.replace(AUTHOR, "vips", broken())
    # The table has every member of the topic, else a replacement could not remove them.
    assert {user for user, is_on in published(world).items() if is_on} <= on_list(world)
    world.broker_is_down = False
    world.micros += 1
    world.lists.replace(AUTHOR, "vips", ["x"])
    assert on_list(world) == {"x"} == {user for user, is_on in published(world).items() if is_on}


def test_one_request_at_a_time_writes_a_list() -> None:
    world = World()

    def meanwhile() -> Any:
        yield "a"
        with pytest.raises(ResourceBusy):
            world.lists.add(AUTHOR, "vips", ["b"])
        world.lists.add(AUTHOR, "other", ["b"])

    world.lists.add(AUTHOR, "vips", meanwhile())
    world.lists.add(AUTHOR, "vips", ["c"])
    assert on_list(world) == {"a", "c"}


def test_members_come_in_pages() -> None:
    world = World()
    world.lists.add(AUTHOR, "vips", ["a", "bb", "c", "dd", "e"])
    seen, cursor = [], None
    while True:
        items, cursor = world.lists.members("acme", "vips", PageOf(2, cursor))
        seen += [item["user_id"] for item in items]
        if cursor is None:
            break
    assert sorted(seen) == ["a", "bb", "c", "dd", "e"]
    assert world.lists.members("acme", "other", PageOf(2, None)) == ([], None)
