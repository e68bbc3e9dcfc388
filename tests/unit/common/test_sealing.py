"""Secrets at rest: what opens, what does not, and what the errors contain."""

import base64
from pathlib import Path

import pytest

from starling_campaigns.definitions.targets.field import SEALED as MARK
from starling_common.security.sealing import SEALED, KeyMissing, Place, Sealer, Unreadable, is_sealed, new_key, parse_keys
from starling_common.settings import SecretKeys

OLD, NEW = b"o" * 32, b"n" * 32
PLACE = Place("acme", "webhook/crm", "secret")
SECRET = "hunter2 \N{KEY} \ud800"
"""Also with half of a surrogate pair, which JSON can contain."""


def test_a_secret_is_opened_at_its_place_alone() -> None:
    sealer = Sealer({"k1": OLD})
    stored = sealer.seal(SECRET, PLACE)
    assert stored.startswith("sealed:v1:k1:")
    assert "hunter2" not in stored
    assert sealer.open(stored, PLACE) == SECRET
    assert sealer.seal(SECRET, PLACE) != stored
    for other in (PLACE._replace(workspace="other"), PLACE._replace(resource="webhook/shop"), PLACE._replace(field="url")):
        with pytest.raises(Unreadable, match="copied from another place"):
            sealer.open(stored, other)


def test_places_do_not_run_together() -> None:
    sealer = Sealer({"k1": OLD})
    with pytest.raises(Unreadable):
        sealer.open(sealer.seal(SECRET, Place("a", "b", "c/d")), Place("a", "b/c", "d"))


def test_every_changed_byte_is_noticed() -> None:
    sealer = Sealer({"k1": OLD})
    head, _, text = sealer.seal("s", PLACE).rpartition(":")
    data = base64.b64decode(text)
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(Unreadable):
            sealer.open(f"{head}:{base64.b64encode(changed).decode()}", PLACE)
    for broken in ("", "!", base64.b64encode(data[:20]).decode()):
        with pytest.raises(Unreadable):
            sealer.open(f"{head}:{broken}", PLACE)


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = Sealer({"old": OLD}).seal(SECRET, PLACE)
    both = Sealer({"new": NEW, "old": OLD})
    assert both.key_id == "new"
    assert both.open(before, PLACE) == SECRET
    assert (both.is_current(before), both.is_current(both.seal("x", PLACE))) == (False, True)
    assert Sealer({"new": NEW}).open(both.seal(SECRET, PLACE), PLACE) == SECRET


def test_the_error_names_the_key_the_place_and_the_cure() -> None:
    stored = Sealer({"2025": OLD}).seal("hunter2", PLACE)
    with pytest.raises(Unreadable) as missing:
        Sealer({"2026": NEW}).open(stored, PLACE)
    message = str(missing.value)
    assert "secret of webhook/crm in the workspace acme" in message
    assert "with the key '2025', and this process has only 2026" in message
    assert "STARLING_SECRETS__KEYS" in message
    with pytest.raises(Unreadable, match="this process has none"):
        Sealer().open(stored, PLACE)
    with pytest.raises(Unreadable, match="the key '2025' does not decrypt it: another key had this id"):
        Sealer({"2025": NEW}).open(stored, PLACE)


def test_without_keys_plain_secrets_are_read_and_none_is_stored() -> None:
    sealer = Sealer()
    assert sealer.open("whsec_plain", PLACE) == "whsec_plain"
    with pytest.raises(KeyMissing, match="STARLING_SECRETS__KEYS or STARLING_SECRETS__KEYS_FILE"):
        sealer.seal("s", PLACE)


def test_keys_of_a_setting_and_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first, second = new_key("2027"), new_key("2026.old_1-a")
    file.write_text(f"# newest first\n{first}\n\n  {second}  # until June\n")
    found = Sealer.of(SecretKeys(keys_file=str(file)))
    stored = Sealer.of(SecretKeys.model_validate({"keys": f"{first},{second}"})).seal(SECRET, PLACE)
    assert (found.key_id, found.open(stored, PLACE)) == ("2027", SECRET)
    assert Sealer.of(SecretKeys()).key_id is None
    assert Sealer.of(SecretKeys.model_validate({"keys": ""})).key_id is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("c2VjcmV0", "entry 1: expected id=key"),
        ("a:b=c2VjcmV0", "entry 1: expected id=key"),
        ("=c2VjcmV0", "entry 1: expected id=key"),
        ("ok=" + base64.b64encode(OLD).decode() + ",b=c2VjcmV0", "entry 2: the key 'b' is not the base64 of 32 bytes"),
        ("b=c2VjcmV0!", "entry 1: the key 'b' is not the base64 of 32 bytes"),
        (f"a={base64.b64encode(OLD).decode()},a={base64.b64encode(NEW).decode()}", "entry 2: the id 'a' is there twice"),
    ],
)
def test_an_error_in_the_keys_has_its_place_and_no_key(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="STARLING_X: ") as refused:
        parse_keys(text, "STARLING_X")
    assert reason in str(refused.value)
    assert "c2VjcmV0" not in str(refused.value)


def test_a_file_that_cannot_be_read_and_two_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"KEYS_FILE=.*missing: the file cannot be read: No such file"):
        Sealer.of(SecretKeys(keys_file=str(tmp_path / "missing")))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="it is not ASCII"):
        Sealer.of(SecretKeys(keys_file=str(tmp_path / "binary")))
    with pytest.raises(ValueError, match="exclude each other"):
        Sealer.of(SecretKeys.model_validate({"keys": new_key("a"), "keys_file": "b"}))


def test_one_mark_of_stored_secrets() -> None:
    assert MARK == SEALED
    assert is_sealed(Sealer({"k": OLD}).seal("s", PLACE))
    assert not is_sealed("whsec_s")
    assert not is_sealed(None)
