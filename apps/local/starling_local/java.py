"""Adapter: finds the Java on this machine and reads its version."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from starling_local.errors import NotPossible

WANTED_MAJOR = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation. Shape: `command` is the path of its `java`, `home` its JAVA_HOME, `build` its exact version."""

    command: str
    home: Path
    build: str = ""


class JavaError(NotPossible):
    """Java is missing, or has another version. The text states the cure."""


_CURE = f"install Java {WANTED_MAJOR} (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"


def find_java() -> Java:
    """Return the Java of JAVA_HOME, else of the PATH. Raises JavaError for a missing Java or another version."""
    named = os.environ.get("JAVA_HOME")
    command = str(Path(named) / "bin" / "java") if named else shutil.which("java")
    if command is None or not Path(command).exists():
        raise JavaError(f"Java {WANTED_MAJOR} is missing{f' in JAVA_HOME={named}' if named else ''}: {_CURE}")
    output = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    text = output.stderr + output.stdout
    major = parse_major(text)
    if major is None:  # Often the cause is an unknown option in JAVA_TOOL_OPTIONS.
        raise JavaError(
            f"{command} -version names no version; Java {WANTED_MAJOR} is needed. Its output: {' | '.join(text.splitlines())}"
        )
    if major != WANTED_MAJOR:
        raise JavaError(f"{command} is Java {major}, but Java {WANTED_MAJOR} is needed: {_CURE}")
    return Java(command, Path(command).resolve().parent.parent, parse_build(text))


def parse_major(text: str) -> int | None:
    """Return the major version in the output of `java -version`; None if it names none. `1.8.0` is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def parse_build(text: str) -> str:
    """Return the build in the output of `java -version`; empty if it names none. The output also depends on options of Java."""
    found = re.search(r"\(build ([^,)]+)", text)
    return found.group(1) if found else ""
