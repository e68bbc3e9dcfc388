"""What is compiled of the segment language, and what is not, say the same."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import starling_segments
import starling_segments.plan

LIBRARY = Path(starling_segments.__file__).parent.parent
CASES = Path(__file__).parent / "test_segments_cases.py"


def test_where_there_is_a_compiler_the_plan_is_compiled() -> None:
    there = runpy.run_path(str(LIBRARY / "compile_native.py"))["compiler"]() is not None
    assert starling_segments.plan.__file__.endswith(".so") is there


def test_the_shared_cases_hold_in_plain_python_too(tmp_path: Path) -> None:
    shutil.copytree(
        LIBRARY / "starling_segments", tmp_path / "starling_segments", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copytree(LIBRARY / "cases", tmp_path / "cases")
    told = f"import starling_segments.plan as plan; assert plan.__file__.startswith({str(tmp_path)!r}), plan.__file__"
    plain = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", told], env=plain, check=True)
    command = [sys.executable, "-m", "pytest", str(CASES)]
    ran = subprocess.run(command, env=plain, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
