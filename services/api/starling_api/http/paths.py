"""Edge: ids in paths. A user id may contain any character. A slash in it is sent as `%2F` and is no separator."""

from typing import Final
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

USER: Final = "/users/{user_id:id}"


class IdConvertor(Convertor[str]):
    """Converts between one path segment, as `EncodedSlashes` encodes it, and the id."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the id of a path segment."""
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        """Return the path segment of an id."""
        return _encoded(value)


class EncodedSlashes:
    """ASGI middleware that keeps `a%2Fb` and `a/b` distinct. The server decodes the whole path, which makes them equal."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http" and b"%2" in (raw := scope.get("raw_path") or b""):
            parts = raw.partition(b"?")[0].decode("latin-1").split("/")
            scope["path"] = "/".join(_encoded(unquote(part)) for part in parts)
        await self._app(scope, receive, send)


def _encoded(segment: str) -> str:
    return segment.replace("%", "%25").replace("/", "%2F")


register_url_convertor("id", IdConvertor())
