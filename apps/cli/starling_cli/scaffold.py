"""Core: a new channel of campaigns in a checkout: its class, its place in each list of channels, and a passing contract."""

import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from starling_local.errors import UserError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")

_DELIVERY: Final = "services/delivery/starling_delivery"
_CAMPAIGNS: Final = "libs/campaigns/starling_campaigns"
_SETTINGS: Final = f"{_DELIVERY}/settings.py"
_ALL_SETTINGS: Final = "libs/common/starling_common/settings.py"
_REGISTRY: Final = f"{_DELIVERY}/channels/__init__.py"
_CHANNELS: Final = f"{_CAMPAIGNS}/channels.py"
_TARGETS: Final = f"{_CAMPAIGNS}/definitions/targets/table.py"
_TOPICS: Final = "schemas/avro/topics.yaml"
_REFERENCE: Final = "tools/settings_reference.py"
_DOCS: Final = "docs/reference/campaigns.md"

CLASS: Final = Template('''"""Adapter: the channel $name."""

from starling_delivery.channel import AT_MOST_ONCE, Again, Answer, Delivered, Impossible, Message, Unknown
from starling_delivery.channels.http import HttpChannel, MaybeSent, NotSent


class ${title}Channel(HttpChannel):
    """POSTs the text to the URL of the target."""

    name = "$name"
    semantics = AT_MOST_ONCE

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result."""
        target = self.settings_of(message)
        if target is None:
            return Impossible("target_archived")
        try:
            answer = await self.http.post(target["url"], message.content["text"])
        except NotSent as error:
            return Again(str(error))
        except MaybeSent as error:
            return Unknown(str(error))
        return Delivered(answer.status) if answer.ok else Again("refused", answer.status, answer.retry_after)
''')

CONTRACT: Final = Template('''"""The channel $name, held to the contract of channels."""

from collections.abc import Mapping
from typing import Any

from starling_delivery.channel import Message
from starling_delivery.channels.$name import ${title}Channel
from tests.contract.delivery.channel_contract import HttpChannelContract


class Test$title(HttpChannelContract):
    channel = ${title}Channel
    uses_addresses = False

    def target(self) -> Mapping[str, Any]:
        return {"url": self.endpoint.url}

    def message(self, delivery_id: str = "d1x", text: str = "Hello") -> Message:
        return self.rendered(delivery_id, {"text": text})
''')


@dataclass(frozen=True, slots=True)
class _Edit:
    """A change of one file. `what`: for the error if the file has no place for it. `change` returns None then."""

    path: str
    what: str
    change: Callable[[str], str | None]


def checkout_of(directory: Path) -> Path:
    """Return the root of the checkout that contains a directory. Raises: UserError."""
    for candidate in (directory, *directory.parents):
        if (candidate / _TOPICS).is_file() and (candidate / _REGISTRY).is_file():
            return candidate
    raise UserError(f"{directory} is in no checkout of Starling: run the command in one, or state it with --into")


def new_channel(root: Path, name: str) -> Mapping[Path, str]:
    """Return path -> the text of each file that a new channel adds or changes. Nothing is written. Raises: UserError."""
    _check_name(root, name)
    title = "".join(part.capitalize() for part in name.split("_"))
    found = {
        root / _DELIVERY / "channels" / f"{name}.py": CLASS.substitute(name=name, title=title),
        root / "tests/contract/delivery" / f"test_{name}_channel.py": CONTRACT.substitute(name=name, title=title),
    }
    for path in found:
        if path.exists():
            raise UserError(f"{path} exists: choose another name, or remove it")
    for edit in _edits(name, title):
        path = root / edit.path
        changed = edit.change(found.get(path) or path.read_text())
        if changed is None:
            raise UserError(f"{path} has no place for {edit.what}: use the `starling` of the same version as the checkout")
        found[path] = changed
    return found


def _check_name(root: Path, name: str) -> None:
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name) or name.startswith("model_"):
        raise UserError(f"{name!r} is no name of a channel: 1 to 32 of a-z, 0-9 and _, a letter first, and no word of Python")
    if f'"{name}"' in (root / _CHANNELS).read_text() or f'    "{name}": ' in (root / _TARGETS).read_text():
        raise UserError(f"there is a channel {name!r} already: choose another name")
    if any(re.search(rf"^    (def )?{name}\b", (root / path).read_text(), re.MULTILINE) for path in (_SETTINGS, _ALL_SETTINGS)):
        raise UserError(f"there is a setting {name!r} already, and a channel has one of its name: choose another name")


def _edits(name: str, title: str) -> Iterator[_Edit]:
    module = f"from starling_delivery.channels.{name} import {title}Channel\n"
    yield _Edit(_REGISTRY, "an import", lambda text: _sorted_in(text, r"(?:from starling_delivery\.channels\..*\n)+", module))
    yield _Edit(
        _REGISTRY, "the channel", _at_end(r"CAMPAIGN_CHANNELS: [^\n]*\{\n(?:    .*\n)*", f'    "{name}": {title}Channel.open,\n')
    )
    channel = f'        Channel("{name}", (Part("text", required=True),), ("{name}",)),\n'
    yield _Edit(_CHANNELS, "the channel", _at_end(r"    for channel in \(\n(?:        .*\n)*", channel))
    yield _Edit(_CHANNELS, "the channel", _at_end(r"SENT_CHANNELS: Final = frozenset\(\{[^}]*", f', "{name}"'))
    target = f'    "{name}": {{"url": TargetField(URL)}},\n'
    yield _Edit(_TARGETS, "the fields of a target", _at_end(r"CHANNEL_FIELDS: [^\n]*\{\n(?:(?: .*)?\n)*?(?=\})", target))
    for kind in ("requests", "bulk"):
        topic = (
            f"  delivery.{kind}.{name}: {{schema: DeliveryRequested, key: profile, partitions: profile, retention: 7d, "
            "compatibility: FULL_TRANSITIVE}\n"
        )
        yield _Edit(_TOPICS, "the topic", _at_end(rf"(?:  delivery\.{kind}\.[a-z0-9_]+: .*\n)+", topic))
        inputs = r"  - \{name: email, group: starling-email, inputs: \[[^\]]*"
        yield _Edit(_TOPICS, "the input", _at_end(inputs, f", delivery.{kind}.{name}"))
    limits = f'class {title}(ChannelLimits):\n    """How messages of the channel {name} are sent."""\n\n\n'
    yield _Edit(_SETTINGS, "the settings", _before("class EmailSettings(", limits))
    yield _Edit(
        _SETTINGS,
        "the settings",
        _before("    links: LinkKeys = LinkKeys()\n    request_topic", f"    {name}: {title} = {title}()\n"),
    )
    yield _Edit(_REFERENCE, "the settings", lambda text: _imported(text, title))
    yield _Edit(
        _REFERENCE, "the settings", _at_end(r"CONNECTIONS: [^\n]*\{\n(?:    .*\n)*", f'    {title}: "The channel {name}",\n')
    )
    yield _Edit(_REFERENCE, "the settings", _at_end(r"_NESTED_NAMES: [^\n]*\{\n(?:    .*\n)*", f'    {title}: "{name.upper()}",\n'))
    yield _Edit(_DOCS, "the parts", _at_end(r"\| channel \| parts \|\n(?:\|.*\n)*", f"| `{name}` | `text` |\n"))


def _at_end(pattern: str, added: str) -> Callable[[str], str | None]:
    """Return a change that adds a text after the match of a pattern."""

    def change(text: str) -> str | None:
        found = re.search(pattern, text)
        return None if found is None else text[: found.end()] + added + text[found.end() :]

    return change


def _before(anchor: str, added: str) -> Callable[[str], str | None]:
    """Return a change that adds a text before another one."""
    return lambda text: text.replace(anchor, added + anchor, 1) if anchor in text else None


def _sorted_in(text: str, pattern: str, line: str) -> str | None:
    """Return the text with a line in a block of sorted ones."""
    found = re.search(pattern, text)
    if found is None:
        return None
    lines = sorted([*found[0].splitlines(keepends=True), line])
    return text[: found.start()] + "".join(lines) + text[found.end() :]


def _imported(text: str, title: str) -> str | None:
    found = re.search(r"(?<=^from starling_delivery\.settings import )(\w+(?:, \w+)*)$", text, re.MULTILINE)
    if found is None:
        return None
    return text[: found.start()] + ", ".join(sorted([*found[0].split(", "), title])) + text[found.end() :]
