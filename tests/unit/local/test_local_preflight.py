import socket
from pathlib import Path

import pytest

from starling_local import preflight
from starling_local.java import JavaError, find_java, parse_build, parse_major

GIB = 1024**3


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("bash: java: command not found", None),
    ],
)
def test_the_java_version_is_read(text: str, major: int | None) -> None:
    assert parse_major(text) == major


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=f"Java 17 is missing in JAVA_HOME={tmp_path}: install Java 17"):
        find_java()


def test_another_java_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_prints(tmp_path, 'openjdk version "11.0.2"')))
    with pytest.raises(JavaError, match=r"is Java 11, but Java 17 is needed: install"):
        find_java()


def test_a_java_that_cannot_start_is_reported_with_its_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_prints(tmp_path, "Unrecognized VM option 'MaxPermSize'", exit_code=1)))
    with pytest.raises(
        JavaError, match=r"-version names no version; Java 17 is needed. Its output: Unrecognized VM option 'MaxPermSize'"
    ):
        find_java()


def java_that_prints(home: Path, text: str, exit_code: int = 0) -> Path:
    fake = home / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\ncat >&2 <<"."\n{text}\n.\nexit {exit_code}\n')
    fake.chmod(0o755)
    return home


def test_no_java_at_all_is_a_fault_with_a_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install openjdk-17" in (preflight.java_problem() or "")
    assert "apt install maven" in (preflight.maven_problem() or "")


def test_an_old_python_is_a_fault() -> None:
    assert preflight.python_problem((3, 11)) is None
    assert "this is Python 3.9, but 3.11 or newer is needed" in (preflight.python_problem((3, 9)) or "")


def test_little_disk_and_little_memory_are_faults(tmp_path: Path) -> None:
    assert preflight.disk_problem(tmp_path, 3 * GIB) is None
    assert "0.5 GiB are free" in (preflight.disk_problem(tmp_path, GIB // 2) or "")
    assert preflight.memory_problem(4 * GIB) is None
    assert "--no-spark" in (preflight.memory_problem(GIB) or "")
    assert "but 6 are needed: " in (preflight.memory_problem(4 * GIB, more_spark_jobs=2) or "")


def test_a_taken_port_is_named_with_the_setting_that_moves_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (fault,) = preflight.port_problems({"kafka": port})
    assert fault.startswith(f"port {port} (kafka) is taken")
    assert "--port-base" in fault


def test_a_free_port_is_no_fault() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert list(preflight.port_problems({"kafka": port})) == []


def test_a_path_that_a_configuration_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    assert preflight.data_dir_problem(tmp_path / "a b") is None
    assert "contains ," in (preflight.data_dir_problem(tmp_path / "a,b") or "")
    assert "--data-dir" in (preflight.data_dir_problem(tmp_path / "a:b") or "")


def test_all_problems_are_reported_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = preflight.problems(tmp_path / "a;b", {"api": taken.getsockname()[1]}, fetching=True, whole_stack=False)
    assert [fault.split()[0] for fault in found] == ["Java", "mvn", "the", "port"]


def test_the_build_of_java_does_not_depend_on_its_options() -> None:
    mixed = "OpenJDK Runtime Environment (build 17.0.15+6)\nOpenJDK 64-Bit Server VM (build 17.0.15+6, mixed mode, sharing)"
    assert parse_build(mixed) == "17.0.15+6"
    assert parse_build(f"Picked up JAVA_TOOL_OPTIONS: -Xint\n{mixed.replace('mixed', 'interpreted')}") == "17.0.15+6"
    assert parse_build("java: not found") == ""
