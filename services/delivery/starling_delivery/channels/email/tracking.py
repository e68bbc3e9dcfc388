"""Pure core: the links of a mail lead through the tracker: clicks, the pixel, and the link to unsubscribe."""

from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from typing import Final

from starling_delivery.channel import Message
from starling_messages.links import MAX_TOKEN_CHARACTERS, Link, LinkKind, Links

_EMAIL: Final = "email"
_FOLLOWED: Final = ("http://", "https://")
_END_OF_BODY: Final = "</body>"


@dataclass(frozen=True)
class Tracking:
    """The links of one installation. `base_url`: of the tracker, without a slash at its end."""

    base_url: str
    links: Links

    def unsubscribe_link(self, message: Message) -> str:
        """Return the link by which the person of a message unsubscribes from its channel and purpose.

        That of a test is invalid: its reader is not the person.
        """
        if message.is_test:
            return f"{self.base_url}/{LinkKind.UNSUBSCRIBE}/test"
        return self._url(LinkKind.UNSUBSCRIBE, _link(message))

    def html(self, message: Message, html: str) -> str:
        """Return the HTML with links that count clicks, and with a pixel at the end of its body; that of a test unchanged."""
        if message.is_test:
            return html
        link = _link(message)
        parts: list[str] = []
        copied = 0
        for start, end, url in _Anchors(html).found:
            if url.startswith(f"{self.base_url}/{LinkKind.UNSUBSCRIBE}/"):
                continue  # a link of the content to unsubscribe
            token = self.links.token(LinkKind.CLICK, link._replace(url=url))
            if len(token) > MAX_TOKEN_CHARACTERS:
                continue  # the tracker would not read it, and the link would lead nowhere
            tracked = f"{self.base_url}/{LinkKind.CLICK}/{token}"
            parts += [html[copied:start], escape(tracked)]
            copied = end
        parts.append(html[copied:])
        pixel = f'<img src="{escape(self._url(LinkKind.OPEN, link))}" width="1" height="1" alt="" style="display:none">'
        whole = "".join(parts)
        at = whole.lower().rfind(_END_OF_BODY)
        return whole + pixel if at < 0 else whole[:at] + pixel + whole[at:]

    def _url(self, kind: LinkKind, link: Link) -> str:
        return f"{self.base_url}/{kind}/{self.links.token(kind, link)}"


class _Anchors(HTMLParser):
    """Finds the values of `href` of the anchors that lead to the web: (start, end, URL), in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[int, int, str]] = []
        self._lines = [0]
        for line in html.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the link of an anchor."""
        url = next((value for name, value in attrs if name == "href"), None)
        text = self.get_starttag_text() or ""
        if tag != "a" or url is None or not url.strip().lower().startswith(_FOLLOWED):
            return
        place = _value_of_href(text)
        if place is not None:
            line, column = self.getpos()
            begin = self._lines[line - 1] + column
            self.found.append((begin + place[0], begin + place[1], url.strip()))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the link of an anchor that ends at once."""
        self.handle_starttag(tag, attrs)


def _value_of_href(tag: str) -> tuple[int, int] | None:
    """Return where in the text of a start tag the value of its first quoted `href` begins and ends; None without one."""
    at = 0
    lower = tag.lower()
    while (at := lower.find("href", at)) >= 0:
        rest = tag[at + 4 :]
        stripped = rest.lstrip()
        if tag[at - 1 : at].isspace() and stripped.startswith("="):
            value = stripped[1:].lstrip()
            if value[:1] in {'"', "'"}:
                start = len(tag) - len(value) + 1
                end = tag.find(value[0], start)
                return None if end < 0 else (start, end)
            return None
        at += 4
    return None


def _link(message: Message) -> Link:
    return Link(
        message.workspace,
        message.user_id,
        message.delivery_id,
        _EMAIL,
        message.target_key,
        message.campaign,
        message.purpose,
    )
