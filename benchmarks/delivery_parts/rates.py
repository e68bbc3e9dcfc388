"""Rates of the real processes over a backlog, each relative to a bare loop: the kit, the webhook, and the channel `email`.

Contenders run one at a time and in turn, a new process with a new consumer group each, over the same backlog. Before the first
round one process runs whose figures are not kept: broker and disk are cold then.
"""

import importlib.util
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from common.bench import Rate, stack
from common.segmenting import load
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from delivery_parts import records
from delivery_parts.clients import AT_ONCE, CONNECTIONS, mails
from delivery_parts.processes import MESSAGES, Backlog, bare_loop, compared, rate_of
from delivery_parts.receivers import receiving
from starling_common.kafka.topics import MEMBERSHIP, request_topic
from starling_delivery.channels.email.signing import Signer

_USERS: Final = 10_000
_DELIVERY: Final = ("starling_delivery",)
_NOOP: Final = ("delivery_parts.noop_process",)
_REQUESTS: Final = request_topic("email")
_SIGNATURES: Final = 300
_OF_A_LOOP: Final = 3
"""A loop of a client sends a third of the backlog. It is measured to its end, and a process for ten seconds only."""
_COLD: Final = -1
"""The number of the round before the first one."""
Contender = Callable[[int], Rate]
"""Number of the round -> the rate."""


def in_turn(rounds: int, contenders: Mapping[str, Contender], yardstick: str) -> dict[str, Any]:
    """Run each contender once a round, and before them the last one, whose figures are not kept."""
    list(contenders.values())[-1](_COLD)
    runs: dict[str, list[Rate]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, contender in contenders.items():
            runs[name].append(contender(number))
            last = runs[name][-1]
            print(f"  {name}: {last.per_second:,.0f}/s, {last.per_cpu_second:,.0f}/CPU-s over {last.events:,}", flush=True)
    return {"rounds": rounds, **compared(runs, yardstick)}


def feed_kit(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    """The kit of feeds, at least once, with a channel that does nothing, relative to a loop of decoding and such a channel.

    The second yardstick is a loop that publishes an outcome for each change, as every kit must.
    """
    with stack(directory / "stack") as made:
        load(made, MEMBERSHIP, records.changes(count, _USERS))
        records.define(made, "webhook", {"key": "sink", "url": "http://127.0.0.1:1/hook", "secret": records.SIGNING})

        def kit(number: int) -> Rate:
            backlog = Backlog("webhook", "DELIVERED", count)
            return rate_of(made, directory, f"bench-feed-{number}", (*_NOOP, "feed"), backlog, {})

        contenders: dict[str, Contender] = {
            "loop": lambda _number: bare_loop(made, "decode", MEMBERSHIP, str(count)),
            "reporting_loop": lambda _number: bare_loop(made, "report", MEMBERSHIP, str(count)),
            "kit": kit,
        }
        found = in_turn(rounds, contenders, "loop")
        kits, reporting = found["contenders"]["kit"], found["contenders"]["reporting_loop"]
        for name in ("events_per_second", "events_per_cpu_second"):
            kits[f"{name}_of_reporting_loop"] = round(kits[name] / reporting[name], 3)
        return {"changes": count, **found}


def message_kit(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    """The kit of messages: last look, rendering, and transactions, at most once and at least once."""
    with stack(directory / "stack") as made:
        load(made, _REQUESTS, records.requests(count, _USERS))
        records.define_mails(made, records.relay(1))

        def kit(arrival: str, outcome: str) -> Contender:
            def run(number: int) -> Rate:
                name = f"bench-{arrival.replace('_', '-')}-{number}"
                return rate_of(made, directory, name, (*_NOOP, arrival), Backlog("email", outcome, count), MESSAGES)

            return run

        contenders: dict[str, Contender] = {
            "loop": lambda _number: bare_loop(made, "decode", _REQUESTS, str(count)),
            "at_most_once": kit("at_most_once", "SENT"),
            "at_least_once": kit("at_least_once", "DELIVERED"),
        }
        return {"messages": count, **in_turn(rounds, contenders, "loop")}


def webhook(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    """The process of webhooks relative to a bare loop of httpx with as many requests at a time; one with aiohttp beside it.

    The yardstick has a client for each request in progress, because the pool of one client is slower, the more connections it has.
    """
    with receiving("http") as port, stack(directory / "stack") as made:
        url = f"http://127.0.0.1:{port}/hook"
        load(made, MEMBERSHIP, records.changes(count, _USERS))
        records.define(made, "webhook", {"key": "sink", "url": url, "secret": records.SIGNING})

        def process(number: int) -> Rate:
            backlog = Backlog("webhook", "DELIVERED", count)
            return rate_of(made, directory, f"bench-webhook-{number}", _DELIVERY, backlog, {})

        def loop(client: str) -> Contender:
            return lambda _number: bare_loop(None, client, url, str(count // _OF_A_LOOP))

        contenders: dict[str, Contender] = {"httpx": loop("httpx"), "httpx_shared": loop("httpx_shared")}
        if importlib.util.find_spec("aiohttp") is not None:
            contenders["aiohttp"] = loop("aiohttp")
        contenders["webhook"] = process
        return {"changes": count, "requests_at_once": AT_ONCE, **in_turn(rounds, contenders, "httpx")}


def email(directory: Path, count: int, rounds: int) -> dict[str, Any]:
    """The channel `email` relative to a bare loop of its SMTP client; without DKIM, and with keys of RSA 2048 and Ed25519."""
    keys = {"rsa_2048": rsa_key(), "ed25519": pem_of(ed25519.Ed25519PrivateKey.generate())}
    with receiving("smtp") as port, stack(directory / "stack") as made:
        load(made, _REQUESTS, records.requests(count, _USERS))
        versions = iter(range(1, 1_000))

        def process(name: str) -> Contender:
            def run(number: int) -> Rate:
                records.define_mails(made, records.relay(port, **dkim_of(keys.get(name))), next(versions))
                backlog = Backlog("email", "SENT", count)
                return rate_of(made, directory, f"bench-email-{name}-{number}", _DELIVERY, backlog, MESSAGES)

            return run

        contenders: dict[str, Contender] = {
            "loop": lambda _number: bare_loop(None, "smtp", str(port), str(count // _OF_A_LOOP)),
            "unsigned": process("unsigned"),
            **{name: process(name) for name in keys},
        }
        found = in_turn(rounds, contenders, "loop")
    signatures = {name: round(signature_micros(key, rounds), 1) for name, key in keys.items()}
    return {"mails": count, "connections": CONNECTIONS, "signature_cpu_us": signatures, **found}


def rsa_key() -> str:
    return pem_of(rsa.generate_private_key(65537, 2048))


def pem_of(key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


def dkim_of(key: str | None) -> dict[str, Any]:
    """Return the field of a target that signs."""
    return {} if key is None else {"dkim": {"domain": "example.com", "selector": "s1", "private_key": key}}


def signature_micros(key: str, rounds: int) -> float:
    """Return the CPU time of one signature of a mail, in µs; the least of the rounds."""
    signer, parts = Signer.of("example.com", "s1", key), [_split(mail.data) for mail in mails()[:_SIGNATURES]]
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        for headers, body in parts:
            signer.header(headers, body)
        taken.append((time.process_time() - began) / len(parts) * 1e6)
    return min(taken)


def _split(mail: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers of a mail, each with its folded value, and the body."""
    head, _, body = mail.partition(b"\r\n\r\n")
    headers = [line.partition(b":") for line in re.split(rb"\r\n(?![ \t])", head)]
    return [(name, value) for name, _, value in headers], body
