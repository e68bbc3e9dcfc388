"""Which installation a command works with: options, the environment, contexts in a file."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from starling_cli.app import build_app, options_first
from starling_cli.commands.common import REMOTE_TOKEN, REMOTE_URL, Remote, remote_target
from starling_cli.contexts import FILE_VARIABLE, Contexts, Target, checked_url, contexts_file, read_contexts, write_contexts
from starling_local.errors import NotPossible

PROD, TEST = Target("https://prod.example.com", "p"), Target("https://test.example.com", "t")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "contexts.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    for name in (REMOTE_URL, REMOTE_TOKEN):
        monkeypatch.delenv(name, raising=False)
    return path


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(build_app(), options_first(arguments), input=text)


def test_contexts_are_added_used_listed_and_removed(file: Path) -> None:
    assert run("context", "add", "prod", "--url", "https://prod.example.com/", "--token", "p").exit_code == 0
    assert run("context", "add", "test", "--url", "https://test.example.com", text="t\n").exit_code == 0
    assert read_contexts(file) == Contexts({"prod": PROD, "test": TEST}, None)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("context", "use", "prod").output == "using prod\n"
    listed = run("context", "list").output
    assert [line.split() for line in listed.splitlines()[1:]] == [["*", "prod", PROD.url], ["test", TEST.url]]
    assert "p" not in {word for line in listed.splitlines()[1:] for word in line.split()}  # no token
    assert run("context", "use").output == "using the local instance\n"
    assert read_contexts(file).current is None
    run("context", "use", "prod")
    assert run("context", "remove", "prod").output == "removed prod\n"
    assert read_contexts(file) == Contexts({"test": TEST}, None)
    assert list(file.parent.iterdir()) == [file]


def test_the_nearest_choice_wins(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert remote_target(Remote(), None) is None
    write_contexts(file, Contexts({"prod": PROD, "test": TEST}, "prod"))
    assert remote_target(Remote(), None) == PROD
    assert remote_target(Remote(token="other"), None) == PROD._replace(token="other")
    assert remote_target(Remote(), tmp_path) is None
    monkeypatch.setenv(REMOTE_URL, "https://env.example.com")
    monkeypatch.setenv(REMOTE_TOKEN, "e")
    assert remote_target(Remote(), None) == Target("https://env.example.com", "e")
    assert remote_target(Remote(), tmp_path) is None
    assert remote_target(Remote(context="test"), None) == TEST
    assert remote_target(Remote(url="http://127.0.0.1:1/"), None) == Target("http://127.0.0.1:1", "e")
    assert remote_target(Remote("http://127.0.0.1:1", "o"), None) == Target("http://127.0.0.1:1", "o")


@pytest.mark.parametrize(
    ("remote", "local", "why"),
    [
        (Remote("https://a.example"), False, "--url is given without a token"),
        (Remote("https://a.example", "t"), True, "--data-dir names a local instance"),
        (Remote("https://a.example", "t", "prod"), False, "--url and --context name two installations"),
        (Remote(token="t"), False, "--token is given without --url"),
        (
            Remote(context="prod"),
            False,
            "there is no context 'prod' .known: none.: add it by `starling context add prod --url URL`",
        ),
        (Remote("ftp://a.example", "t"), False, "no address of an API"),
    ],
)
def test_contradictions_are_refused(remote: Remote, local: bool, why: str, tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match=why):
        remote_target(remote, tmp_path if local else None)


@pytest.mark.parametrize("url", ["prod.example.com", "https://", "https://a.example?x=1", "file:///etc/passwd"])
def test_an_address_of_no_api_is_refused(url: str) -> None:
    with pytest.raises(NotPossible, match="is no address of an API"):
        checked_url(url)


def test_a_file_of_something_else_is_named(file: Path) -> None:
    file.parent.mkdir()
    for content in ("{", "[]", json.dumps({"contexts": {"a": {"url": "https://a.example"}}})):
        file.write_text(content)
        with pytest.raises(NotPossible, match=f"{file} is no file of contexts"):
            read_contexts(file)


def test_a_name_with_a_slash_is_refused() -> None:
    with pytest.raises(NotPossible, match="is no name of a context"):
        Contexts({}).added("a/b", PROD)


def test_a_context_without_a_token_is_refused() -> None:
    assert isinstance(run("context", "add", "prod", "--url", "https://prod.example.com").exception, NotPossible)


def test_options_may_follow_the_command() -> None:
    assert options_first(["segments", "list", "--url", "u", "--token=t"]) == ["--url", "u", "--token=t", "segments", "list"]
    assert options_first(["context", "add", "n", "--url", "u"]) == ["context", "add", "n", "--url", "u"]
    assert options_first(["segments", "show", "--", "--url"]) == ["segments", "show", "--", "--url"]
    assert options_first(["segments", "show", "context", "--context", "prod"]) == [
        "--context",
        "prod",
        "segments",
        "show",
        "context",
    ]
    assert options_first(["segments", "list", "--url"]) == ["--url", "segments", "list"]


def test_a_command_of_the_local_instance_takes_no_installation() -> None:
    refused = run("status", "--url", "https://prod.example.com")
    assert "`starling status` works with a local instance" in str(refused.exception)


def test_the_file_is_in_the_configuration_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(FILE_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert contexts_file() == tmp_path / "starling" / "contexts.json"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts_file() == tmp_path / ".config" / "starling" / "contexts.json"
