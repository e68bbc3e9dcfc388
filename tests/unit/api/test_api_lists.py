"""Uploaded lists: what an upload may look like, and that the topic and the table never drift apart."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_api.http.errors import AtWork, BadRequest, TooLarge
from starling_api.http.pagination import PageOf
from starling_api.lists import lists as lists_module
from starling_api.lists import uploads
from starling_api.lists.uploads import count_ids, json_users, read_ids
from starling_common.kafka import BrokerUnavailable
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


def told(world: World) -> dict[str, bool]:
    """What somebody knows who reads the topic."""
    return {user: one.on_list for one in world.told for user in one.users}


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda text: len(text.encode("utf-8", "ignore")) > 0)), st.integers(1, 9))
def test_json_is_read_piece_by_piece_as_a_whole(users: list[str], piece: int) -> None:
    body = json.dumps({"users": users}, indent=piece % 3, ensure_ascii=piece % 2 == 0).encode()
    assert list(json_users(_Pieces(body, piece))) == users


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_half_of_a_surrogate_pair_is_no_other_character(piece: int) -> None:
    body = b'{"users": ["ada", "\\ud83d\\ude00", "\\uD800\\u0041"]}'
    assert list(json_users(_Pieces(body, piece))) == ["ada", "😀", "\ud800A"]


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
        ('"a,b"\n"say ""hi"""', ["a,b", 'say "hi"']),
        ("", []),
    ],
)
def test_csv_is_an_id_a_line(body: str, found: list[str]) -> None:
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
def test_another_shape_is_told_where(body: str, pointer: str) -> None:
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
def test_what_is_no_json_is_refused(body: str | bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        ids(body)
    assert refused.value.code == "not_json"


@pytest.mark.parametrize("body", [b"ada,bob\n", b"\xff\n", b'"ada\n'])
def test_what_is_no_list_of_ids_as_csv_is_refused(body: bytes) -> None:
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


def test_faults_are_told_together_and_the_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_topic_says_what_the_table_has() -> None:
    world = World()
    assert world.lists.replace(AUTHOR, "vips", iter(["a", "b", "c", "dd", "ee"])) == 5
    world.micros += 1
    assert world.lists.add(AUTHOR, "vips", ["f", "a"]) == 2
    assert world.lists.remove(AUTHOR, "vips", ["b", "nobody"]) == 2
    world.micros += 1
    world.lists.replace(AUTHOR, "vips", ["c", "new", "f"])
    assert on_list(world) == {"c", "new", "f"} == {user for user, is_on in told(world).items() if is_on}
    assert max(len(one.users) for one in world.told) == 2  # never more in memory
    world.micros += 1
    world.lists.replace(AUTHOR, "vips", [])
    assert on_list(world) == set()
    assert not any(told(world).values())


def test_an_upload_that_broke_off_is_made_whole_by_the_next() -> None:
    world = World()
    world.lists.replace(AUTHOR, "vips", ["a", "b", "c"])

    def broken() -> Any:
        yield from ("c", "d", "e", "f")
        world.broker_is_down = True
        yield from ("g", "h")

    world.micros += 1
    with pytest.raises(BrokerUnavailable):
        world.lists.replace(AUTHOR, "vips", broken())
    # Whoever the topic has on the list the table has too: else nobody would ever take them off.
    assert {user for user, is_on in told(world).items() if is_on} <= on_list(world)
    world.broker_is_down = False
    world.micros += 1
    world.lists.replace(AUTHOR, "vips", ["x"])
    assert on_list(world) == {"x"} == {user for user, is_on in told(world).items() if is_on}


def test_one_request_a_list_at_a_time() -> None:
    world = World()

    def meanwhile() -> Any:
        yield "a"
        with pytest.raises(AtWork):
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
