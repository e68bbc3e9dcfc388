"""Compiles the hot path of the segment language with mypyc, beside its sources; `make setup` runs it.

    python libs/segments/compile_native.py [--clean | --check]

`--clean`: back to plain Python. `--check`: exit code 1 when what was compiled was made from other sources.

Without a C compiler, or Python's headers, the same modules run as plain Python: same results, slower. Nothing is done
when the sources are those that were compiled last.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE / "starling_segments"
STAMP = HERE / ".compiled"
MODULES = (
    "comparisons", "compile", "filters", "groups", "leaf_table", "leaves", "paths", "plan", "routes", "sequences", "standing",
    "waiting", "window_leaves",
    "operators/__init__", "operators/arrays", "operators/moments", "operators/operands", "operators/places", "operators/scalars",
    "operators/table",
)  # fmt: skip
"""What an event passes through, but for the records of the state: those are msgspec's, which mypyc cannot compile."""

_BUILD = """
from mypyc.build import mypycify
from setuptools import setup
setup(name="starling-segments-native", packages=[], ext_modules=mypycify({arguments!r}, opt_level="3", debug_level="0"))
"""
_MYPY = "[mypy]\npython_version = 3.11\nignore_missing_imports = True\nfollow_untyped_imports = False\n"


def compiler() -> str | None:
    """The C compiler that Python was configured for, None when it or Python's headers are missing."""
    name = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return shutil.which(name) if headers.exists() else None


def fingerprint() -> str:
    """Of all that goes into the result: every source of the package, what compiles it, and for which Python."""
    found = hashlib.sha256(f"{sys.version} {version('mypy')} {compiler()}".encode())
    for source in (Path(__file__), *sorted(PACKAGE.rglob("*.py"))):
        found.update(source.relative_to(HERE).as_posix().encode() + b"\0" + source.read_bytes())
    return found.hexdigest()


def is_current() -> bool:
    """Whether what lies beside the sources was made from them."""
    return STAMP.exists() and STAMP.read_text() == fingerprint()


def clean() -> None:
    """Back to plain Python."""
    STAMP.unlink(missing_ok=True)
    for made in (*HERE.glob("*.so"), *PACKAGE.rglob("*.so")):
        made.unlink()


def build(directory: Path) -> None:
    """Compile a copy of the package in `directory`, then put the extension modules where Python looks for them first.

    Raises: subprocess.CalledProcessError, with what the compiler said.
    """
    shutil.copytree(PACKAGE, directory / PACKAGE.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (directory / "mypy.ini").write_text(_MYPY)
    arguments = ["--config-file=mypy.ini", *(f"{PACKAGE.name}/{module}.py" for module in MODULES)]
    (directory / "setup.py").write_text(_BUILD.format(arguments=arguments))
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for made in directory.glob("*.so"):
        shutil.move(made, HERE / made.name)
    for made in (directory / PACKAGE.name).rglob("*.so"):
        shutil.move(made, HERE / made.relative_to(directory))


def main() -> int:
    """Exit code 1: there is a compiler, and it could not do it."""
    if "--clean" in sys.argv[1:]:
        clean()
        return 0
    if is_current():
        return 0
    if "--check" in sys.argv[1:]:
        return 1
    clean()
    if compiler() is None:
        print("setup: no C compiler or no Python headers here: segments are evaluated by plain Python, which is slower.")
    else:
        print("setup: compiling the segment language (about half a minute) ...")
        try:
            with tempfile.TemporaryDirectory() as directory:
                build(Path(directory))
        except subprocess.CalledProcessError as error:
            clean()
            print(error.stdout[-4000:], file=sys.stderr)
            print("setup: the segment language could not be compiled (see above).", file=sys.stderr)
            return 1
    STAMP.write_text(fingerprint())
    return 0


if __name__ == "__main__":
    sys.exit(main())
