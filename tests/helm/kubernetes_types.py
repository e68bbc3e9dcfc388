"""The fields of Kubernetes, as its Python client knows them: a check of manifests without an API server."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubernetes import client

_SCALARS: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "float": (int, float), "object": (object,), "datetime": (str,),
}  # fmt: skip


def misfits(value: Any, kind: str, path: str) -> Iterator[str]:
    """Yield the fields of a manifest that its type lacks, and those of a wrong type. `kind`: in the words of the client."""
    listed, mapped = re.fullmatch(r"[Ll]ist\[(.*)\]", kind), re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", kind)
    if kind in _SCALARS:
        if not isinstance(value, _SCALARS[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{path}: {kind} is expected, not {value!r}"
    elif listed and isinstance(value, list):
        for number, one in enumerate(value):
            yield from misfits(one, listed[1], f"{path}[{number}]")
    elif listed or not isinstance(value, Mapping):
        yield f"{path}: {kind} is expected, not {value!r}"
    elif mapped:
        for name, one in value.items():
            yield from misfits(one, mapped[1], f"{path}.{name}")
    else:
        model = getattr(client, kind)
        fields = {name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()}
        for name, one in value.items():
            if name in fields:
                yield from misfits(one, fields[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}: {kind} has no such field"
