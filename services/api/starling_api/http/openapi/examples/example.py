"""Pure core: what an example is, and what examples of several subjects share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

Document = dict[str, Any]

FIRST: Final = "default"
"""The name of an example beside others."""
INSTANT: Final = "2026-03-01T09:30:00.000Z"
REVISION: Final = 1772357400000000
WHERE: Final[Document] = {"event": "Order Completed", "op": "gte", "value": 2, "within": "90d"}
SERVER: Final[Document] = {"version": 1, "revision": REVISION, "status": "active", "created_at": INSTANT, "updated_at": INSTANT}


class Example(NamedTuple):
    """The JSON body of a request and of its response. None: no body. `others`: name -> another example of the operation."""

    request: Any = None
    response: Any = None
    others: "Mapping[str, Example]" = MappingProxyType({})

    def requests(self) -> Document:
        """Return the bodies of requests by name."""
        return {name: one.request for name, one in {FIRST: self, **self.others}.items() if one.request is not None}

    def responses(self) -> Document:
        """Return the bodies of responses by name."""
        return {name: one.response for name, one in {FIRST: self, **self.others}.items() if one.response is not None}


def page(*items: Document, **more: Any) -> Document:
    """Return a response with the items of a page."""
    return {"items": list(items), "next_cursor": None, "as_of": INSTANT, **more}


def definition_examples(name: str, plural: str, bodies: tuple[Document, Document], shown: Document) -> dict[str, Example]:
    """Return the examples of the operations of every kind of definition. `bodies`: of a new one and of a changed one."""
    new, update = bodies
    return {
        f"create_{name}": Example(new, shown),
        f"list_{plural}": Example(None, page({**shown, "size": 2} if name == "segment" else shown)),
        f"get_{name}": Example(None, {**shown, "used_by": [], "as_of": INSTANT}),
        f"update_{name}": Example(update, {**shown, "version": 2}),
    }


def without_key(body: Document) -> Document:
    """Return the body of a definition as `PUT` accepts it too."""
    return {field: value for field, value in body.items() if field != "key"}
