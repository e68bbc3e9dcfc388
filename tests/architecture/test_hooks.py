"""The hooks of pre-commit, run by Git in a repository of their own."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = (".pre-commit-config.yaml", "pyproject.toml", "tools/commit_message.py", "tests/architecture/vocabulary.py")

Commit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def commit(tmp_path_factory: pytest.TempPathFactory) -> Commit:
    """Stages files and commits them in a repository with the hooks installed."""
    repository = tmp_path_factory.mktemp("repository")
    for name in NEEDED:
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, repository / name)
    (repository / ".venv").symlink_to(ROOT / ".venv")
    (repository / ".gitignore").write_text(".venv\n__pycache__/\n.ruff_cache/\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("pre-commit")),
    }

    def run(*command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=check)

    run("git", "init", "--quiet", check=True)
    run("git", "config", "user.name", "Ada", check=True)
    run("git", "config", "user.email", "ada@example.com", check=True)
    run(".venv/bin/pre-commit", "install", check=True)

    def committed(message: str, **files: str) -> subprocess.CompletedProcess[str]:
        run("git", "reset", "--quiet", "--", "libs")
        for stem, text in files.items():
            path = repository / f"libs/common/{stem}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run("git", "add", "--all", check=True)
        done = run("git", "commit", "--message", message)
        for stem in files:
            run("git", "rm", "--quiet", "--force", f"libs/common/{stem}.py", check=True)
        return done

    return committed


def test_a_clean_change_is_committed(commit: Commit) -> None:
    done = commit("common: add a bound", good='"""Bounds."""\n\nMAX_IDS = 512\n')
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "hook", "reason"),
    [
        pytest.param('"""Bounds."""\n\nMAX_IDS  =  512\n', "ruff-format", "libs/common/planted.py", id="format"),
        pytest.param('"""Bounds."""\n\nimport os\n', "ruff", "F401", id="lint"),
        pytest.param(
            '"""Bounds that the broker tells."""\n',  # vocabulary: tells: the planted word
            "vocabulary",
            "'tells' is retired",  # vocabulary: tells: the planted word
            id="vocabulary",
        ),
    ],
)
def test_a_hook_refuses_a_planted_fault(commit: Commit, text: str, hook: str, reason: str) -> None:
    done = commit("common: add a bound", planted=text)
    assert done.returncode != 0
    assert f"hook id: {hook}\n" in done.stderr
    assert reason in done.stderr


def test_a_hook_refuses_a_subject_without_a_scope(commit: Commit) -> None:
    done = commit("added a bound", bound='"""Bounds."""\n')
    assert done.returncode != 0
    assert "hook id: commit-message" in done.stderr
    assert "the subject has no scope" in done.stderr
