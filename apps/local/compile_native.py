"""Compiles the modules of the hot path with mypyc, next to their sources; `make setup` runs it.

    python apps/local/compile_native.py [--clean | --check]

`--clean`: delete the compiled modules. `--check`: exit code 1 if the compiled modules were built from other sources.

Without a C compiler or Python's headers the modules run as plain Python, with the same results but slower. Modules built
from the current sources are not compiled again.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SHARED = ROOT / "libs" / "common"
"""Directory of the code that all compiled modules share: the lowest library, which every package imports."""
STAMP = ROOT / "libs" / ".compiled"
MODULES = {
    "libs/common/starling_common": (
        "headers", "values", "cassandra/encoding", "cassandra/read_models", "http/rate_limits", "wire/basics", "wire/fields",
    ),
    "libs/segments/starling_segments": (
        "language/dates", "language/paths", "language/periods",
        "language/operators/__init__", "language/operators/arrays", "language/operators/moments", "language/operators/operands",
        "language/operators/geo", "language/operators/scalars", "language/operators/table",
        "aggregates/first_match", "aggregates/measure_table", "aggregates/panes", "aggregates/values",
        "parse/comparisons", "parse/filters", "parse/groups",
        "engine/evaluator", "engine/event_index", "engine/future_events", "engine/leaves", "engine/plan", "engine/serialisation",
        "engine/trait_conditions", "engine/window_leaves", "engine/sequences/bounds", "engine/sequences/sequence",
        "compile/compiler", "compile/leaf_table", "compile/sequence_plan",
    ),
    "libs/stream/starling_stream": (
        "model/changelog", "model/records", "model/rows",
        "fold/arrivals", "fold/batches", "fold/beyond", "fold/merge", "fold/pending_view", "fold/read_ahead",
        "fold/task", "fold/task_fold", "fold/unit_of_work",
    ),
    "libs/items/starling_items": ("enrich", "events"),
    "libs/rules/starling_rules": ("events", "inputs"),
    "services/ingest/starling_ingest": (
        "limits", "publishing/publish", "publishing/shares", "requests/identifiers", "requests/request",
    ),
    "services/normalizer/starling_normalizer": ("agents",),
    "services/projector/starling_projector": (
        "projection/batch", "projection/incarnations", "projection/rows", "projection/tallies", "projection/writes",
    ),
    "services/segmenter/starling_segmenter": (
        "agents", "emitter", "records/account_messages", "records/membership", "records/membership_encoder", "state/states",
        "switching/switcher",
        "handlers/__init__", "handlers/account_answers", "handlers/account_tallies", "handlers/behaviour", "handlers/clock",
        "handlers/delivery", "handlers/handler", "handlers/lists", "handlers/profile",
    ),
}  # fmt: skip
"""Package -> modules of the hot path. mypyc cannot compile msgspec structs, exceptions and enumerations. Its dataclasses cannot be
pickled, as Spark does with those of `starling_items.pipeline`.
"""

_BUILD = """
from mypyc.build import mypycify
from setuptools import setup
setup(name="starling-native", packages=[], ext_modules=mypycify({arguments!r}, opt_level="3", debug_level="0"))
"""
_MYPY = "[mypy]\npython_version = 3.11\nignore_missing_imports = True\nfollow_untyped_imports = False\n"


def compiler() -> str | None:
    """Return the C compiler that Python was configured for; None if it or Python's headers are missing."""
    name = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return shutil.which(name) if headers.exists() else None


def fingerprint() -> str:
    """Return a digest of all inputs of the build: sources, mypy, the C compiler and Python."""
    # The path of the compiler depends on the order of PATH, which differs between shells.
    found = hashlib.sha256(f"{sys.version} {version('mypy')} {Path(compiler() or '').name}".encode())
    places = {(ROOT / package / module).parent for package, modules in MODULES.items() for module in modules}
    for source in (Path(__file__), *sorted(source for place in places for source in place.glob("*.py"))):
        found.update(source.relative_to(ROOT).as_posix().encode() + b"\0" + source.read_bytes())
    return found.hexdigest()


def is_current() -> bool:
    """Return whether the compiled modules were built from the current sources."""
    return STAMP.exists() and STAMP.read_text() == fingerprint()


def clean() -> None:
    """Delete the compiled modules."""
    STAMP.unlink(missing_ok=True)
    for made in (*SHARED.glob("*.so"), *(made for package in MODULES for made in (ROOT / package).rglob("*.so"))):
        made.unlink()


def build(directory: Path) -> None:
    """Compile copies of the packages in `directory`, then move the extension modules next to the sources.

    Raises: subprocess.CalledProcessError with the output of the compiler.
    """
    wanted: list[str] = []
    for package, modules in MODULES.items():
        source = ROOT / package
        shutil.copytree(source, directory / source.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        wanted += [f"{source.name}/{module}.py" for module in modules]
    (directory / "mypy.ini").write_text(_MYPY)
    (directory / "setup.py").write_text(_BUILD.format(arguments=["--config-file=mypy.ini", *wanted]))
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for made in directory.glob("*.so"):
        shutil.move(made, SHARED / made.name)
    for package in MODULES:
        there = ROOT / package
        for made in (directory / there.name).rglob("*.so"):
            shutil.move(made, there.parent / made.relative_to(directory))


def main() -> int:
    """Compile if necessary; return exit code 1 if the compilation fails."""
    if "--clean" in sys.argv[1:]:
        clean()
        return 0
    if is_current():
        return 0
    if "--check" in sys.argv[1:]:
        return 1
    clean()
    sources = fingerprint()  # a source that changes during the build must be compiled by the next one
    if compiler() is None:
        print("setup: no C compiler or no Python headers found: the hot path runs as plain Python, which is slower.")
    else:
        print("setup: compiling the hot path (about a minute) ...")
        try:
            with tempfile.TemporaryDirectory() as directory:
                build(Path(directory))
        except subprocess.CalledProcessError as error:
            clean()
            print(error.stdout[-4000:], file=sys.stderr)
            print("setup: the compilation of the hot path failed (see above).", file=sys.stderr)
            return 1
    STAMP.write_text(sources)
    return 0


if __name__ == "__main__":
    sys.exit(main())
