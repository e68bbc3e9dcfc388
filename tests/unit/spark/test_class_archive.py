import shlex
from pathlib import Path

import pytest

from starling_spark.session import class_archive


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without an archive."""
    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "a share" / "spark.jsa")
    monkeypatch.setattr(class_archive, "STAMP", tmp_path / "a share" / "spark.of")
    return tmp_path


def written(archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    archive.write_text("classes")


def test_a_driver_without_an_archive_starts_without_the_option(place: Path) -> None:
    assert class_archive.java_options() == ""
    written(class_archive.ARCHIVE)
    assert shlex.split(class_archive.java_options())[0] == f"-XX:SharedArchiveFile={class_archive.ARCHIVE}"


def test_a_current_archive_is_not_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Path] = []

    def make(archive: Path) -> None:
        made.append(archive)
        written(archive)

    monkeypatch.setattr(class_archive, "make", make)
    assert class_archive.main() == 0
    assert "making the class archive" in capsys.readouterr().out
    assert class_archive.main() == 0
    assert (made, capsys.readouterr().out) == ([class_archive.ARCHIVE], "")
    java = place / "other" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(place / "other"))
    assert class_archive.main() == 0
    assert len(made) == 2


def test_a_failure_leaves_no_archive_and_is_reported(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Path) -> None:
        raise OSError("Java wrote no archive")

    written(class_archive.ARCHIVE)
    monkeypatch.setattr(class_archive, "make", fail)
    assert class_archive.main() == 0
    assert "the jobs of Spark start more slowly: Java wrote no archive" in capsys.readouterr().err
    assert not class_archive.ARCHIVE.exists()
