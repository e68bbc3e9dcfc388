"""The coverage gate on small measurements, and the measurement of subprocesses and forks by the project's configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

from tools.coverage_gate import Package, main, measured, packages

ROOT = Path(__file__).parents[3]
PLAIN = ROOT / "tools/plain_python"

PROGRAM = """
import os, signal, subprocess, sys, time

from starling_common import values

def forked():
    import starling_common.telemetry.health
    print("ready", flush=True)
    time.sleep(60)

if sys.argv[1:] == ["parent"]:
    subprocess.run([sys.executable, __file__, "child"], check=True)
elif sys.argv[1:] == ["child"]:
    import starling_common.kafka.topics
    os._exit(0)
elif (pid := os.fork()) == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    forked()
else:
    os.waitpid(pid, 0)
"""


def summary(lines: int, covered: int) -> dict[str, dict[str, int]]:
    return {"summary": {"num_statements": lines, "covered_lines": covered, "num_branches": 4, "covered_branches": 3}}


def test_the_numbers_are_added_by_package() -> None:
    files = {
        "libs/a/starling_a/one.py": summary(10, 9),
        "libs/a/starling_a/inner/two.py": summary(30, 30),
        "spark/starling_spark/job.py": summary(0, 0),
        "tools/other.py": summary(5, 0),
    }
    a, spark = packages(files)
    assert a == Package("starling_a", 40, 39, 8, 6)
    assert (a.line_percent, a.branch_percent) == (97.5, 75.0)
    assert (spark.name, spark.line_percent) == ("starling_spark", 100.0)


def test_data_that_is_missing_is_refused_with_the_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 1
    assert "make coverage" in capsys.readouterr().err


def lines_of(data: CoverageData, name: str) -> list[int]:
    [path] = [path for path in data.measured_files() if path.endswith(name)]
    return data.lines(path) or []


def environment(directory: Path) -> dict[str, str]:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    return outer | {"COVERAGE_FILE": str(directory / "data"), "PYTHONPATH": str(PLAIN)}


def combined(directory: Path) -> CoverageData:
    coverage = Coverage(data_file=str(directory / "data"), config_file=str(ROOT / "pyproject.toml"))
    coverage.combine([str(directory)])
    return coverage.get_data()


def test_a_subprocess_in_another_directory_is_measured_also_when_it_exits_at_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}", "program.py", "parent"]
    subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), check=True)
    data = combined(tmp_path)
    assert lines_of(data, "starling_common/values.py")
    assert lines_of(data, "starling_common/kafka/topics.py")
    assert not lines_of(data, "starling_common/telemetry/health.py")


def test_a_fork_that_a_signal_ends_is_measured(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}", "program.py", "fork"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), 1)
    assert process.returncode == 0
    assert lines_of(combined(tmp_path), "starling_common/telemetry/health.py")


@pytest.mark.long
def test_a_module_that_no_process_imports_counts_as_not_covered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}", "program.py", "parent"]
    subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), check=True)
    combined(tmp_path).close()
    files = measured(tmp_path / "data")
    assert files["libs/common/starling_common/kafka/topics.py"]["summary"]["covered_lines"] > 0
    assert files["spark/starling_spark/text.py"]["summary"]["covered_lines"] == 0
    assert not [path for path in files if path.endswith("_pb2.py")]
    record = tmp_path / "coverage.json"
    assert main([str(tmp_path / "data"), "--least", "0", "--write", str(record), "--run", "one program"]) == 0
    assert "starling_spark" in capsys.readouterr().out
    written = json.loads(record.read_text())
    assert written["run"] == "one program"
    assert written["packages"]["starling_spark"]["lines_percent"] == 0
    assert written["packages"]["starling_common"]["branches"] > 0
    assert main([str(tmp_path / "data")]) == 1
    assert "below 92 % of lines" in capsys.readouterr().out


def test_compiled_modules_are_passed_over(tmp_path: Path) -> None:
    package = tmp_path / "libs" / "starling_x"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "module.py").write_text("kind = 'source'\n")
    (package / "module.cpython-311-x86_64-linux-gnu.so").write_bytes(b"not a library")
    (tmp_path / "tools/plain_python").mkdir(parents=True)
    (tmp_path / "tools/plain_python/sitecustomize.py").write_text((PLAIN / "sitecustomize.py").read_text())
    program = "from starling_x.module import kind; print(kind)"
    paths = {"PYTHONPATH": f"{tmp_path / 'tools/plain_python'}:{tmp_path / 'libs'}"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | paths, capture_output=True, text=True, check=False)
    assert done.stdout == "source\n", done.stderr
