"""Compiled modules and plain Python give the same results."""

import importlib
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import starling_segments

LIBRARY = Path(starling_segments.__file__).parent.parent
NATIVE = runpy.run_path(str(LIBRARY.parent.parent / "apps" / "local" / "compile_native.py"))
CASES = Path(__file__).parent / "test_segments_cases.py"


def test_where_there_is_a_compiler_the_hot_path_is_compiled() -> None:
    there = NATIVE["compiler"]() is not None
    for package, names in NATIVE["MODULES"].items():
        for name in names:
            module = importlib.import_module(f"{Path(package).name}.{name}".replace("/", ".").removesuffix(".__init__"))
            assert (module.__file__ or "").endswith(".so") is there, name


def test_no_record_of_msgspec_is_compiled() -> None:
    """mypyc silently ignores the class arguments `array_like` and `tag`: the bytes would differ."""
    for package, names in NATIVE["MODULES"].items():
        for name in names:
            assert "msgspec.Struct" not in (NATIVE["ROOT"] / package / f"{name}.py").read_text(), name


def test_the_shared_cases_hold_in_plain_python_too(tmp_path: Path) -> None:
    shutil.copytree(
        LIBRARY / "starling_segments", tmp_path / "starling_segments", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copytree(LIBRARY / "cases", tmp_path / "cases")
    check = f"import starling_segments.engine.evaluator as made; assert made.__file__.startswith({str(tmp_path)!r}), made.__file__"
    plain = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", check], env=plain, check=True)
    command = [sys.executable, "-m", "pytest", str(CASES)]
    ran = subprocess.run(command, env=plain, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
