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
    """Shape: `command` starts it, `home` is its JAVA_HOME."""

    command: str
    home: Path


class JavaError(NotPossible):
    """There is no usable Java; the text says what is missing and the cure."""


_CURE = f"install Java {WANTED_MAJOR} (Debian: apt install openjdk-17-jre-headless) or point JAVA_HOME at one"


def find_java() -> Java:
    """The Java of JAVA_HOME, else of the PATH. Raises JavaError unless it is the wanted version."""
    named = os.environ.get("JAVA_HOME")
    command = str(Path(named) / "bin" / "java") if named else shutil.which("java")
    if command is None or not Path(command).exists():
        raise JavaError(f"Java {WANTED_MAJOR} is missing{f' in JAVA_HOME={named}' if named else ''}: {_CURE}")
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    said = told.stderr + told.stdout
    major = parse_major(said)
    if major is None:  # often an option that it does not know, in JAVA_TOOL_OPTIONS
        raise JavaError(f"{command} does not tell its version, needed is {WANTED_MAJOR}; it says: {' | '.join(said.splitlines())}")
    if major != WANTED_MAJOR:
        raise JavaError(f"{command} is Java {major}, needed is {WANTED_MAJOR}: {_CURE}")
    return Java(command, Path(command).resolve().parent.parent)


def parse_major(text: str) -> int | None:
    """The major version in the answer of `java -version`; None if it names none. `1.8.0` is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
