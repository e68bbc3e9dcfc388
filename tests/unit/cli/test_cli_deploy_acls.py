"""`starling deploy acls` on the command line: its forms, errors and exit codes."""

import itertools
import json
import shlex
import sys

import pytest
import yaml

from starling_cli.app import main
from starling_local.errors import NOT_POSSIBLE, OK


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["starling", "deploy", "acls", *words])
    monkeypatch.delenv("STARLING_KAFKA__BROKERS", raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or OK)


def test_a_table_has_a_row_for_each_resource(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--service", "ingest") == OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["principal", "resource", "name", "operations", "reason"]
    assert ["User:starling-ingest", "topic", "ingest.watermarks", "read,", "write"] in [row[:5] for row in rows]
    assert {row[0] for row in rows[1:]} == {"User:starling-ingest"}


def test_all_forms_have_the_same_rights(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--principal", "User:{service}")
    assert run(monkeypatch, *words, "--json") == OK
    expected = {
        (one["principal"], right["resource"].split()[0], right["name"], right["pattern"], right["operation"].replace(" ", ""))
        for one in json.loads(capsys.readouterr().out)["services"]
        for right in one["rights"]
    }
    assert run(monkeypatch, *words, "--format", "kafka-acls") == OK
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert {right for line in lines for right in _of_command(line)} == expected
    assert run(monkeypatch, *words, "--format", "strimzi", "--cluster", "main") == OK
    users = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {user["metadata"]["labels"]["strimzi.io/cluster"] for user in users} == {"main"}
    assert {right for user in users for right in _of_user(user)} == expected


def _of_command(line: str) -> set[tuple[str, str, str, str, str]]:
    words = shlex.split(line)
    pairs = list(itertools.pairwise(words))
    operations = [value.lower() for name, value in pairs if name == "--operation"]
    [principal] = [value for name, value in pairs if name == "--allow-principal"]
    pattern = "prefixed" if ("--resource-pattern-type", "prefixed") in pairs else "literal"
    kinds = {"--topic": "topic", "--group": "group", "--transactional-id": "transactional"}
    named = [(kinds[name], value) for name, value in pairs if name in kinds]
    return {(principal, kind, name, pattern, operation) for kind, name in named for operation in operations}


def _of_user(user: dict[str, dict[str, object]]) -> set[tuple[str, str, str, str, str]]:
    found = set()
    for rule in user["spec"]["authorization"]["acls"]:  # type: ignore[index]
        resource = rule["resource"]
        kind = resource["type"].replace("transactionalId", "transactional")
        pattern = "prefixed" if resource["patternType"] == "prefix" else "literal"
        for operation in rule["operations"]:
            found.add((f"User:{user['metadata']['name']}", kind, resource["name"], pattern, operation.lower()))
    return found


def test_a_user_of_a_certificate_has_its_common_name_in_strimzi(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--principal", "User:CN=st-{service}", "--format", "strimzi", "--cluster", "main", "--service", "lake")
    assert run(monkeypatch, *words, "--authentication", "tls") == OK
    user = yaml.safe_load(capsys.readouterr().out)
    assert (user["metadata"]["name"], user["spec"]["authentication"]) == ("st-lake", {"type": "tls"})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--principal", "User:starling"), "'User:starling' must contain {service} once"),
        (("--service", "lace"), "there is no service lace; the services are ingest"),
        (("--format", "strimzi"), "--format strimzi needs --cluster NAME"),
        (("--format", "strimzi", "--cluster", "c", "--principal", "User:A={service}"), "User:A=ingest cannot be a KafkaUser"),
        (("--apply",), "no broker: name it by --brokers, or set STARLING_KAFKA__BROKERS"),
        (("--prune",), "--prune removes rights only with --apply"),
    ],
)
def test_an_error_has_the_cure(
    words: tuple[str, ...], error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words) == NOT_POSSIBLE
    assert error in capsys.readouterr().err
