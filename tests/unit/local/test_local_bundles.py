import io
import tarfile
from pathlib import Path

import pytest

from starling_local.runtime import fetching
from starling_local.runtime.bundles import BUNDLES, checksum_mismatches, directory_name, parse_checksums
from starling_local.runtime.fetching import FetchError, fetch, is_fetched


def test_every_bundle_pins_versions_and_bytes() -> None:
    needed = {"kafka", "cassandra", "registry", "spark", "iceberg", "jdbc"}
    assert {name for name, bundle in BUNDLES.items() if not bundle.on_demand} == needed
    assert set(BUNDLES) == needed | {"postgres", "opensearch", "s3", "iceberg-aws", "nessie"}
    for bundle in BUNDLES.values():
        assert parse_checksums(bundle.checksum_file.read_text())
        assert "<version>" in bundle.pom.read_text()
        assert "SNAPSHOT" not in bundle.pom.read_text()


def test_the_directory_changes_with_the_pom() -> None:
    kafka = BUNDLES["kafka"]
    assert directory_name(kafka, b"one") != directory_name(kafka, b"two")
    assert directory_name(kafka, b"one").startswith("kafka-")


def test_a_line_that_is_no_checksum_is_refused() -> None:
    with pytest.raises(ValueError, match="not a checksum line"):
        parse_checksums("abc  a.jar\n")


def test_missing_extra_and_changed_files_are_all_named() -> None:
    mismatches = checksum_mismatches({"a": "1", "b": "1", "c": "1"}, {"b": "1", "c": "2", "d": "1"})
    assert mismatches == ["a is missing", "d is not expected", "c has other bytes"]


def archive_with(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as out:
        entry = tarfile.TarInfo("app.jar")
        entry.size = len(content)
        out.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def test_bytes_that_were_not_pinned_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def bring_other_bytes(_bundle: object, target: Path) -> None:
        target.mkdir()
        (target / "apicurio-registry-app-3.0.9-all.tar.gz").write_bytes(archive_with(b"other"))

    monkeypatch.setattr(fetching, "copy_with_maven", bring_other_bytes)
    with pytest.raises(FetchError, match="has other bytes"):
        fetch(BUNDLES["registry"], tmp_path)
    assert not is_fetched(BUNDLES["registry"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".registry.lock"]


def test_what_is_here_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    messages: list[str] = []
    kafka = BUNDLES["kafka"]
    home = tmp_path / directory_name(kafka, kafka.pom.read_bytes())
    home.mkdir()
    monkeypatch.setenv("PATH", "")
    assert fetch(kafka, tmp_path, messages.append) == home
    assert messages == []


def test_without_maven_the_error_names_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchError, match="install Maven"):
        fetch(BUNDLES["kafka"], tmp_path)
