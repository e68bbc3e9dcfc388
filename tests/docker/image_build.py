"""Executes the stages of the Dockerfile without a container engine.

Each stage is an overlay over the root of this machine, which stands for the base image, in a mount namespace of its own. Nothing
outside the overlay changes. The programs that apt-get would install must be on this machine: a stand-in takes its place, and
another that of tini. Everything else is executed as it is written. Requires root.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.docker.stages import ROOT, Stage

_PLACES = ("/src", "/wheels", "/opt/build", "/opt/starling", "/opt/jars")
"""Directories of the image that this machine must not have: it would be taken for the image's."""
_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_IGNORED = ("*.so", "__pycache__", ".compiled")
"""As .dockerignore leaves them out of the context."""
_INDEX = re.compile(
    r"PIP_(INDEX_URL|EXTRA_INDEX_URL|CERT|FIND_LINKS|DEFAULT_TIMEOUT|TRUSTED_HOST)|(HTTPS?|NO)_PROXY", re.IGNORECASE
)
"""Variables of this machine by which pip and Maven reach their registries."""
_STAND_INS = {
    "apt-get": '#!/bin/sh\necho "not executed: apt-get $*"\n',
    "tini": '#!/bin/sh\n[ "$1" = -- ] && shift\nexec "$@"\n',
    "pip": '#!/bin/sh\nexec /usr/local/bin/python -m pip "$@"\n',
}


class Image(NamedTuple):
    """A stage that was executed. `layer` is the directory of all that differs from this machine."""

    layer: Path
    environment: Mapping[str, str]
    directory: str
    user: str | None
    entry: Sequence[str]


class StepFailed(Exception):
    """A step of the Dockerfile failed; the text has the step and the end of its output."""


def obstacle() -> str | None:
    """Return why the stages cannot be executed here, with the cure; None if they can."""
    if os.geteuid() != 0:
        return "the stages are executed in overlays, which only root may mount: run it as root"
    if found := [place for place in _PLACES if Path(place).exists()]:
        return f"{', '.join(found)} of this machine would be taken for the image's: remove it"
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return "unshare and setpriv are missing: install util-linux"
    return None


class ImageBuild:
    """Executes stages, each once, in `scratch`, which must be on a file system that an overlay can write to."""

    def __init__(self, scratch: Path, stages: Mapping[str, Stage], arguments: Mapping[str, str] = MappingProxyType({})) -> None:
        """`arguments`: of the build, `--build-arg`."""
        self._scratch = scratch
        self._arguments = arguments
        self._stages = stages
        self._images: dict[str, Image] = {}
        stand_ins = scratch / "below/usr/local/bin"
        stand_ins.mkdir(parents=True)
        for name, text in _STAND_INS.items():
            (stand_ins / name).write_text(text)
            (stand_ins / name).chmod(0o755)
        (stand_ins / "python").symlink_to(Path(sys.executable).resolve())
        self._base = Image(scratch / "below", {"PATH": _PATH}, "/", None, ())

    def image(self, name: str) -> Image:
        """Execute a stage and those that it needs. Raises: StepFailed."""
        if name not in self._images:
            stage = self._stages[name]
            below = self.image(stage.base) if stage.base in self._stages else self._base
            image = below._replace(layer=self._scratch / name)
            # The root of this machine contains the layers, so none can be below another: each has the files of its base.
            _copy_tree(below.layer, image.layer)
            for kind, value in stage.steps:
                image = self._step(image, kind, value)
            self._images[name] = image
        return self._images[name]

    def _step(self, image: Image, kind: str, value: str) -> Image:
        match kind:
            case "ENV":
                pairs = dict(pair.split("=", 1) for pair in shlex.split(value))
                expanded = {name: text.replace("$PATH", image.environment["PATH"]) for name, text in pairs.items()}
                return image._replace(environment={**image.environment, **expanded})
            case "WORKDIR":
                self._run(image, f"mkdir -p {shlex.quote(value)}")
                return image._replace(directory=value)
            case "ARG":
                name, default = shlex.split(value)[0].split("=", 1)
                argument = self._arguments.get(name, default)
                return image._replace(environment={**image.environment, name: argument})
            case "COPY":
                self._copy(image, value)
            case "RUN":
                self._run(image, value)
            case "USER":
                return image._replace(user=value)
            case "ENTRYPOINT":
                return image._replace(entry=json.loads(value))
            case "EXPOSE" | "COMMENT":
                pass
            case _:
                raise ValueError(f"{kind} {value}: unknown instruction")
        return image

    def _copy(self, image: Image, value: str) -> None:
        words = shlex.split(value)
        if words[0].startswith("--from="):
            name, (source, target) = words[0].removeprefix("--from="), words[1:]
            _copy_tree(self.image(name).layer / source.lstrip("/"), image.layer / target.lstrip("/"))
            return
        directory = image.layer / image.directory.lstrip("/")
        *sources, target = words
        for source in sources:
            place = directory / target / (Path(source).name if target.endswith("/") else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_IGNORED))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / source, place)

    def _run(self, image: Image, command: str) -> None:
        done = subprocess.run(
            self._inside(image, ["sh", "-c", command]), check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            raise StepFailed(f"{command}: exit code {done.returncode}\n{done.stdout[-4000:]}")

    def start(self, name: str, arguments: Sequence[str], settings: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
        """Start the entry point of an image as its user, on a root that it cannot write to, with an empty /tmp."""
        image = self.image(name)
        image = image._replace(environment={**image.environment, **settings})
        command = self._inside(image, [*image.entry, *arguments], read_only=True)
        with log.open("wb") as output:
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def _inside(self, image: Image, command: Sequence[str], *, read_only: bool = False) -> list[str]:
        """Return the command that mounts the overlay, changes the root and the user, and becomes `command`."""
        mounted, work = self._scratch / "root", self._scratch / "work"
        mounted.mkdir(exist_ok=True)
        work.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if _INDEX.fullmatch(name)} | dict(image.environment)
        user: list[str] = []
        if image.user is not None:
            uid, gid = image.user.split(":")
            user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
        options = f"lowerdir=/,upperdir={image.layer},workdir={work}"
        script = f"""
            set -e
            mount -t overlay overlay -o {shlex.quote(options)} {shlex.quote(str(mounted))}
            cd {shlex.quote(str(mounted))}
            {"mount -o remount,ro ." if read_only else ""}
            mount --rbind /proc proc
            mount --rbind /dev dev
            mount -t tmpfs -o mode=1777 tmpfs tmp
            exec chroot . "$@"
        """
        inside = ["sh", "-c", f'cd {shlex.quote(image.directory)} && exec "$@"', "sh"]
        values = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *values, *user, *inside, *command]


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a directory as hard links. A step that replaces a file, as all of them do, leaves the other link unchanged."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--link", "--no-target-directory", source, target], check=True)
