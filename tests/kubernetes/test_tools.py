"""`tools/k8s_tools.sh` without a build: what it requires, and files that were changed."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools/k8s_tools.sh"


def run(cache: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"XDG_CACHE_HOME": str(cache)} | ({} if path is None else {"PATH": path})
    return subprocess.run([SCRIPT, *arguments], env=variables, capture_output=True, text=True, check=False)


def test_only_files_that_equal_their_sums_are_used(tmp_path: Path) -> None:
    missing = run(tmp_path, "--check")
    assert missing.returncode == 2
    places = [Path(place) for place in re.findall(r"is missing at (\S+): run `make k8s-tools`", missing.stderr)]
    assert {place.name.rpartition("-v")[0] for place in places} >= {"etcd", "kube-apiserver", "scaledobjects.keda.sh"}
    places[0].parent.mkdir(parents=True)
    for place in places:
        place.write_text(place.name)
        digest = hashlib.sha256(place.name.encode()).hexdigest()
        place.with_name(f"{place.name}.sha256").write_text(f"{digest}  {place.name}\n")
    intact = run(tmp_path, "--check")
    assert intact.returncode == 0, intact.stderr
    assert [line.split(" ", 1)[1] for line in intact.stdout.splitlines()] == [str(place) for place in places]
    # Nothing is built where nothing is missing.
    assert run(tmp_path).stdout == intact.stdout

    places[1].write_text("other")
    changed = run(tmp_path, "--check")
    assert changed.returncode == 2
    assert f"{places[1]} differs from its SHA-256" in changed.stderr


def test_a_build_requires_go_and_names_the_cure(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "env", "dirname", "basename", "sed", "grep", "mkdir", "flock", "sha256sum", "cut"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    done = run(tmp_path, path=str(programs))
    assert done.returncode == 2
    assert "Go is missing: install Go 1.26 or later" in done.stderr
