"""Executes the Tiltfile with a Starlark interpreter, and records what it asks of Tilt."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import starlark

MANUAL: Final = "manual"
_RESTART: Final = "ext://restart_process"


class Call(NamedTuple):
    """One call of a function of Tilt."""

    function: str
    positional: Sequence[Any]
    named: Mapping[str, Any]

    def get(self, name: str, position: int | None = None) -> Any:
        """Return an argument by its name or its position; None if it is absent."""
        if name in self.named:
            return self.named[name]
        return self.positional[position] if position is not None and position < len(self.positional) else None


class Recorded(NamedTuple):
    """The calls of a Tiltfile, in order."""

    calls: Sequence[Call]

    def of(self, *functions: str) -> list[Call]:
        """Return the calls of these functions."""
        return [call for call in self.calls if call.function in functions]

    @property
    def images(self) -> Mapping[str, Call]:
        """Return the built images by name."""
        return {call.get("ref", 0): call for call in self.of("docker_build", "docker_build_with_restart")}

    @property
    def resources(self) -> Mapping[str, Call]:
        """Return the configured workloads by name."""
        return {call.get("workload", 0): call for call in self.of("k8s_resource")}

    def paths(self) -> Iterator[str]:
        """Yield every path of the checkout that a call names."""
        for call in self.calls:
            match call.function:
                case "docker_build" | "docker_build_with_restart":
                    yield call.get("context", 1)
                    yield from call.get("only") or ()
                    yield from filter(None, [call.get("dockerfile")])
                case "sync":
                    yield call.get("local_path", 0)
                case "fall_back_on":
                    yield from call.get("files", 0)
                case "helm":
                    yield call.get("pathToChart", 0)
                    yield from call.get("values") or ()
                case "k8s_yaml" if isinstance(call.get("yaml", 0), str):
                    yield call.get("yaml", 0)
                case "local_resource":
                    yield from call.get("deps") or ()


_BUILTINS: Final[Mapping[str, frozenset[str]]] = {
    function: frozenset(names.split())
    for function, names in {
        "allow_k8s_contexts": "contexts",
        "docker_build": "ref context dockerfile dockerfile_contents target only ignore live_update entrypoint build_args",
        "docker_build_with_restart": (
            "ref context entrypoint live_update base_suffix restart_file dockerfile dockerfile_contents target only"
        ),
        "fall_back_on": "files",
        "sync": "local_path remote_path",
        "run": "cmd trigger",
        "helm": "pathToChart name namespace values set kube_version skip_crds",
        "k8s_yaml": "yaml allow_duplicates",
        "k8s_resource": ("workload new_name port_forwards resource_deps objects trigger_mode auto_init labels links pod_readiness"),
        "local_resource": ("name cmd deps ignore resource_deps trigger_mode auto_init labels serve_cmd dir env allow_parallel"),
    }.items()
}
"""Function of Tilt -> the names of its parameters, as its API reference lists them."""


def execute(source: str) -> Recorded:
    """Run a Tiltfile. Raises: starlark.StarlarkError for a name or an argument that Tilt does not have."""
    calls: list[Call] = []

    def recorder(function: str) -> Callable[..., dict[str, str]]:
        def record(*positional: Any, **named: Any) -> dict[str, str]:
            unknown = named.keys() - _BUILTINS[function]
            if unknown:
                raise TypeError(f"{function} has no parameter {', '.join(sorted(unknown))}")
            calls.append(Call(function, positional, named))
            return {"from": function, "call": str(len(calls) - 1)}

        return record

    dialect = starlark.Dialect.extended()
    module, extension = starlark.Module(), starlark.Module()
    for name in _BUILTINS:
        (extension if name.endswith("_with_restart") else module).add_callable(name, recorder(name))
    module["TRIGGER_MODE_MANUAL"] = MANUAL

    def load(name: str) -> starlark.FrozenModule:
        if name != _RESTART:
            raise FileNotFoundError(f"{name}: the tests know {_RESTART} alone")
        return extension.freeze()

    starlark.eval(module, starlark.parse("Tiltfile", source, dialect), starlark.Globals.standard(), starlark.FileLoader(load))
    return Recorded(calls)


def tiltfile(root: Path) -> Recorded:
    """Run the Tiltfile of a checkout."""
    return execute((root / "Tiltfile").read_text())
