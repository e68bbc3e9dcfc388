"""Edge: ids in paths. A user id can hold any character; a slash in it is sent as %2F and separates nothing."""

from typing import Final
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

USER: Final = "/users/{user_id:id}"


class IdConvertor(Convertor[str]):
    """One segment of a path as `EncodedSlashes` leaves it -> the id."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """The id as it was sent."""
        return value.replace("%2F", "/").replace("%25", "%")

    def to_string(self, value: str) -> str:
        """The inverse of `convert`."""
        return _kept(value)


class EncodedSlashes:
    """ASGI middleware. Servers decode the whole path, after which `a%2Fb` and `a/b` are the same; here they stay apart."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection or message."""
        if scope["type"] == "http" and b"%2" in (raw := scope.get("raw_path") or b""):
            parts = raw.partition(b"?")[0].decode("latin-1").split("/")
            scope["path"] = "/".join(_kept(unquote(part)) for part in parts)
        await self._app(scope, receive, send)


def _kept(segment: str) -> str:
    return segment.replace("%", "%25").replace("/", "%2F")


register_url_convertor("id", IdConvertor())
