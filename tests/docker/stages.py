"""The Dockerfile, divided into its stages."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker/Dockerfile"


class Stage(NamedTuple):
    """One `FROM` and the instructions after it."""

    name: str
    base: str
    steps: Sequence[tuple[str, str]]

    def values(self, instruction: str) -> list[str]:
        """Return the arguments of every instruction of this kind, in order."""
        return [value for kind, value in self.steps if kind == instruction]


def stages(text: str) -> dict[str, Stage]:
    """Return name -> stage. Raises: AssertionError for a stage without a name, or an instruction before all of them but ARG."""
    found: list[Stage] = []
    for step in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        kind, value = step["instruction"], step["value"]
        if kind == "FROM":
            base, word, name = value.split()
            assert word == "AS"
            found.append(Stage(name, base, []))
        elif found:
            found[-1] = found[-1]._replace(steps=[*found[-1].steps, (kind, value)])
        else:
            assert kind in {"ARG", "COMMENT"}, kind
    return {stage.name: stage for stage in found}
