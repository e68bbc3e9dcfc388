"""Pure core: the pages of unsubscribing, in English and Japanese. They need no script."""

from dataclasses import dataclass
from html import escape
from typing import Final

LANGUAGES: Final = ("en", "ja")


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one language. `question` and `done` contain the channel and, if it is known, the purpose."""

    title: str
    question: str
    button: str
    done: str
    failed: str
    invalid: str
    purpose: str
    channels: dict[str, str]


_TEXTS: Final = {
    "en": Texts(
        title="Unsubscribe",
        question="Do you want to receive no more {channel}{purpose}?",
        button="Unsubscribe",
        done="You are unsubscribed. You will receive no more {channel}{purpose}.",
        failed="This did not work, and you are still subscribed. Please try again in a moment.",
        invalid="This link is invalid. Please open the link in the message again, or reply to the message.",
        purpose=" about “{name}”",
        channels={"email": "mails", "sms": "text messages", "push": "notifications"},
    ),
    "ja": Texts(
        title="配信停止",
        question="{purpose}{channel}の配信を停止しますか。",
        button="配信を停止する",
        done="配信を停止しました。今後、{purpose}{channel}は届きません。",
        failed="配信を停止できませんでした。しばらくしてから、もう一度お試しください。",
        invalid="このリンクは無効です。メッセージのリンクをもう一度開くか、メッセージに返信してください。",
        purpose="「{name}」に関する",
        channels={"email": "メール", "sms": "SMS", "push": "通知"},
    ),
}
_OTHER: Final = {"en": "messages", "ja": "メッセージ"}
_USUAL: Final = "marketing"
"""The default purpose, which a person who did not choose it need not know."""


def language(accepted: str | None) -> str:
    """Return the language of the page for an `Accept-Language`: the known one with the highest weight, else English."""
    best, weight = "en", 0.0
    for part in (accepted or "").split(","):
        name, _, parameter = part.strip().partition(";")
        primary = name.partition("-")[0].strip().lower()
        try:
            found = float(parameter.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if primary in LANGUAGES and found > weight:
            best, weight = primary, found
    return best


def question(tongue: str, channel: str, purpose: str | None) -> bytes:
    """Return the page with the button. Its form posts to its own address."""
    texts = _TEXTS[tongue]
    button = f'<form method="post"><button type="submit">{texts.button}</button></form>'
    return _page(tongue, _filled(texts, texts.question, tongue, channel, purpose), button)


def done(tongue: str, channel: str, purpose: str | None) -> bytes:
    """Return the page after unsubscribing."""
    texts = _TEXTS[tongue]
    return _page(tongue, _filled(texts, texts.done, tongue, channel, purpose))


def failed(tongue: str) -> bytes:
    """Return the page if the change could not be stored."""
    return _page(tongue, _TEXTS[tongue].failed)


def invalid(tongue: str) -> bytes:
    """Return the page of an unknown link."""
    return _page(tongue, _TEXTS[tongue].invalid)


def _filled(texts: Texts, text: str, tongue: str, channel: str, purpose: str | None) -> str:
    named = "" if purpose in {None, _USUAL} else texts.purpose.format(name=purpose)
    return text.format(channel=texts.channels.get(channel, _OTHER[tongue]), purpose=named)


def _page(tongue: str, text: str, more: str = "") -> bytes:
    return (
        f'<!doctype html><html lang="{tongue}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>{_TEXTS[tongue].title}</title><style>{_STYLE}</style></head>"
        f"<body><main><p>{escape(text)}</p>{more}</main></body></html>"
    ).encode()


_STYLE: Final = (
    "body{font:1.1rem/1.6 system-ui,sans-serif;margin:0;background:#f6f6f4;color:#222}"
    "main{max-width:32rem;margin:15vh auto;padding:2rem;background:#fff;border-radius:.5rem}"
    "button{font:inherit;padding:.6rem 1.4rem;border:0;border-radius:.3rem;background:#1d4ed8;color:#fff;cursor:pointer}"
)
