import stat
from pathlib import Path

import pytest

from starling_local.instance import Options
from starling_local.java import Java
from starling_local.ports import Ports
from starling_local.runtime.archives import PARTS, archive_path, missing_archives, options_for
from starling_local.stack import archives, wiring
from starling_local.stack.archives import NoArchiveError, make
from starling_local.stack.parts.jvm_kafka import kafka_part

JAVA = Java("java", Path("/java"), "17.0.15")


def test_an_archive_belongs_to_one_build_of_java(tmp_path: Path) -> None:
    paths = {archive_path("kafka", java, tmp_path) for java in (JAVA, Java("java", Path("/java"), "17.0.16"))}
    assert len(paths) == 2
    assert {path.parent for path in paths} == {tmp_path / "archives"}


def test_a_part_without_an_archive_starts_without_the_option(tmp_path: Path) -> None:
    assert options_for("kafka", JAVA, tmp_path) == ()
    assert missing_archives(JAVA, tmp_path) == list(PARTS)


def test_a_part_and_its_preparation_use_the_archive() -> None:
    part = kafka_part(Path("/data"), Path("/jars"), Ports(21_000), "java").with_java_options(("-XX:SharedArchiveFile=/a.jsa",))
    assert part.command[:3] == ("java", "-XX:SharedArchiveFile=/a.jsa", "-Xms256m")
    assert part.prepare is not None
    assert part.prepare.command[:3] == ("java", "-XX:SharedArchiveFile=/a.jsa", "-Xmx128m")


def test_parts_use_the_archives_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "fetch", lambda bundle, directory: directory / bundle.name)
    monkeypatch.setattr(wiring, "default_runtime_dir", lambda: tmp_path)
    path = archive_path("kafka", JAVA, tmp_path)
    path.parent.mkdir()
    path.touch()
    options = Options(instance_id="i", port_base=21_000, only=("kafka", "cassandra"))
    parts = {part.name: part for part in wiring.runnable_parts(tmp_path / "data", options, JAVA)}
    assert parts["kafka"].command[1] == f"-XX:SharedArchiveFile={path}"
    assert parts["cassandra"].command[1] == "-Xms512m"
    without = {part.name: part for part in wiring.runnable_parts(tmp_path / "data", options, JAVA, archives=False)}
    assert without["kafka"].command[1] == "-Xms256m"


def test_a_java_that_ends_leaves_no_archive_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "fetch", lambda bundle, directory: directory / bundle.name)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho no memory for Java\nexit 3\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(NoArchiveError, match=r"exit status 3.*no memory for Java"):
        make(Java(str(java), tmp_path), tmp_path)
    assert [path.name for path in (tmp_path / "archives").iterdir()] == [".lock"]


def test_nothing_is_printed_when_the_archives_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archives, "find_java", lambda: JAVA)
    monkeypatch.setattr(archives, "default_runtime_dir", lambda: tmp_path)
    (tmp_path / "archives").mkdir()
    for part in PARTS:
        archive_path(part, JAVA, tmp_path).touch()
    assert archives.main() == 0
    assert capsys.readouterr().out == ""
