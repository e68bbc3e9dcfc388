"""Doors inside one process, for volume: the edge with the stages behind it, definitions with users, files, uploads, cursors.

`python -m tests.fuzz.in_process --door NAME --seed N --seconds S --report FILE`. With `--guided` atheris chooses the bodies by the
lines of the edge that they reach.
"""

import argparse
import asyncio
import io
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from starling_api.http.errors import ApiError
from starling_api.http.pagination import PageOf
from starling_api.lists.uploads import count_ids, read_ids
from starling_cli.history import body_of, header_errors, item_of_json, item_of_row
from starling_cli.importer import Parse, batches
from starling_common.kafka.topics import BEHAVIOUR, OUTCOMES, PROFILE
from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_common.time.instants import wall_clock_ms
from starling_ingest.app import ROUTES
from starling_ingest.requests import accept, item, messages, request
from starling_ingest.requests.accept import body_write_key
from starling_items.work import StageDependencies
from starling_normalizer.agents import Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.testing import local_codecs
from starling_segments import DefinitionRefused, Known, parse_segment, read_document
from starling_stream.testing import Fed, MemoryTask
from tests.fuzz import hostile
from tests.fuzz.cursors import cursor
from tests.fuzz.definitions import definition
from tests.fuzz.files import jsonl, rows
from tests.fuzz.ingest import EXPECTED, make_body
from tests.fuzz.lists import Lists
from tests.fuzz.tally import Account, Attack, Defect, Input, Tally
from tests.property.segments.extremes import LATE_MS, MID_MS, User, parsed, through_json
from tests.unit.ingest.rig import RECEIVED, Edge

_KEPT: Final = 200
MOST_BYTES: Final = 4_000_000
"""A text of the generator can be a hundred times as long, and is then read for minutes."""

"""Inputs after which the states in memory begin again."""


class Chain:
    """One body through the edge, the normalizer and the fold of the segmenter. Every item has an outcome, or a dead letter."""

    name = "in process: bodies to memberships"
    pace = 1e9

    def __init__(self) -> None:
        self._codecs = local_codecs()
        self._runner = asyncio.Runner()
        self._letters = 0
        self._begin()

    def _begin(self) -> None:
        dependencies = NormalizerDependencies(lambda _topic, _outcome: None, wall_clock_ms, lambda: None)
        stage_dependencies = StageDependencies(Clock.WALL, lambda _workspace, _product: None)
        self._normalizer = MemoryTask(normalizer_service(Normalizer(self._codecs, stage_dependencies, dependencies), Clock.WALL))
        self._edge = Edge().open()
        self._user = User([one for key, where in _RULES.items() if (one := parsed(where, "UTC", key)) is not None])
        self._count = 0

    def make(self, dice: random.Random) -> Input:
        """Return one body."""
        made = make_body(dice)
        if dice.random() < 0.98:
            made["headers"]["X-Write-Key"] = "key"
        return made

    def send(self, given: Input, number: int) -> bool:
        """Process it at once."""
        self._count += 1
        if self._count > _KEPT:
            self._begin()
        edge = self._edge
        edge.log.records.clear()
        headers = {name.lower(): value for name, value in given["headers"].items()}
        exchange = self._runner.run(edge.answer("POST", given["path"], given["body"], headers=headers))
        if exchange.status not in EXPECTED:
            raise Defect(f"{given['path']} answered {exchange.status}: {exchange.answer[:300]!r}")
        answer = exchange.json()
        rejected = answer.get("rejected", [])
        dead = [record for record in edge.log.records if record.topic == "ingest.dlq"]
        received = [record for record in edge.log.records if record.topic != "ingest.dlq"]
        if len(dead) != len(rejected) or (exchange.status == 200 and not rejected and not received):
            raise Defect(f"{len(rejected)} rejected, {len(dead)} dead letters, {len(received)} records: {exchange.answer[:300]!r}")
        self._letters += len(dead)
        for record in received:
            self._normalize(record.topic, record.key, self._codecs[record.topic].encode(RECEIVED.decode(record.value)))
        return exchange.status == 200 and not rejected

    def _normalize(self, topic: str, key: bytes | None, value: bytes) -> None:
        task = self._normalizer
        task.feed_all([Fed(topic, key, value, [], wall_clock_ms())])
        outcomes, refused = task.take_outputs(OUTCOMES), len(task.refusals)
        task.refusals.clear()
        self._letters += refused
        if len(outcomes) != 1:
            raise Defect(f"an item has {len(outcomes)} outcomes and {refused} dead letters")
        for output in (*task.take_outputs(BEHAVIOUR), *task.take_outputs(PROFILE)):
            record = self._codecs[output.topic].decode(output.value)
            if output.topic == BEHAVIOUR:
                self._user.does(json.loads(record["properties"]), record["event_time"], record["name"])
            else:
                self._user.becomes(json.loads(record["traits"]), record["received_at"] // 1000)

    def account(self) -> Account:
        """Return the dead letters."""
        return Account(dead_letters=self._letters)


_RULES: Final[dict[str, Any]] = {
    "orders": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 100, "within": "30d"},
    "items": {"event": "Order Completed", "where": {"property": "products.*.price", "op": "gt", "value": 5}},
    "any": {"event": "*", "measure": "count", "op": "gte", "value": 3},
    "plan": {"trait": "plan", "op": "in", "value": ["pro", "free"]},
    "age": {"trait": "age", "op": "between", "value": [18, 99]},
    "steps": {"sequence": [{"event": "Cart"}, {"event": "Order Completed"}], "within": "1d"},
}


class Rules:
    """One definition, refused with a place and an expectation, or evaluated for a user with extreme values."""

    name = "in process: definitions and users"
    pace = 1e9

    def make(self, dice: random.Random) -> Input:
        """Return a definition as bytes, and the user's values."""
        body = hostile.as_bytes(dice, definition(dice, "s"))
        values = [hostile.value(dice, 2) for _ in range(3)]
        return {"body": hostile.broken(dice, body) if dice.random() < 0.1 else body, "values": values, "zone": dice.choice(_ZONES)}

    def send(self, given: Input, number: int) -> bool:
        """Read, parse and compile it; then fold events, a profile and time, and explain the result."""
        try:
            document = read_document(given["body"])
        except (DefinitionRefused, ValueError):
            return False
        where = document.get("where") if isinstance(document, dict) else None
        try:
            segment = parse_segment({"key": "s", "name": "s", "timezone": given["zone"], "where": where}, _KNOWN)
        except DefinitionRefused as refused:
            self._check(refused)
            return False
        user = User([segment], given["zone"])
        user.becomes({}, 0)  # a user is first evaluated at the first record
        for at, value in zip((MID_MS, MID_MS - 86_400_000, LATE_MS), given["values"], strict=True):
            try:
                read = through_json(value)
            except (AssertionError, UnicodeError):  # no value that a trait or property can have
                continue
            properties = {"revenue": read, "plan": read, "tags": [read], "products": [{"price": read}], "a": {"b": {"c": read}}}
            user.does(properties, at, "Order Completed")
            user.becomes(properties, user.now)
        user.passes(LATE_MS, most=5)
        user.explained({"s": where})
        return True

    @staticmethod
    def _check(refused: DefinitionRefused) -> None:
        if not refused.errors or not all(error.message and error.expected for error in refused.errors):
            raise Defect("a definition is refused without a reason")

    def account(self) -> Account:
        """Return nothing more: the answers are complete."""
        return Account()


_KNOWN: Final = Known(computed_traits=frozenset({"clv"}), lists=frozenset({"vips"}), accounts=True)
_ZONES: Final = ("UTC", "Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin")


class Texts:
    """Files of the command line, uploads of lists and cursors, by the functions that read them."""

    name = "in process: files, uploads, cursors"
    pace = 1e9

    def make(self, dice: random.Random) -> Input:
        """Return the kind of text, and its bytes."""
        kind = dice.choice(("jsonl", "csv", "list json", "list csv", "cursor"))
        makers: dict[str, Callable[[], bytes]] = {
            "jsonl": partial(jsonl, dice),
            "csv": partial(rows, dice),
            "list json": partial(Lists._json, dice),
            "list csv": partial(Lists._csv, dice),
            "cursor": lambda: cursor(dice).encode(errors="replace"),
        }
        data = makers[kind]()
        return {"kind": kind, "data": (hostile.broken(dice, data) if dice.random() < 0.3 else data)[:MOST_BYTES]}

    def send(self, given: Input, number: int) -> bool:
        """Read it."""
        data: bytes = given["data"]
        match given["kind"]:
            case "jsonl":
                return self._all_items(io.BytesIO(data), item_of_json)
            case "csv":
                header = data.split(b"\n", 1)[0].decode(errors="replace").split(",")
                if header_errors(header):
                    return False
                source = io.BytesIO(data)
                source.readline()
                return self._all_items(source, partial(item_of_row, header))
        try:
            if given["kind"] == "cursor":
                PageOf(100, data.decode(errors="replace")).after("members", ("", 0))
            else:
                as_csv, source = given["kind"] == "list csv", io.BytesIO(data)
                if count_ids(source, as_csv=as_csv) != len(list(read_ids(source, as_csv=as_csv))):
                    raise Defect("the second reading of an upload has another number of ids")
        except (ApiError, DefinitionRefused):
            return False
        return True

    @staticmethod
    def _all_items(source: io.BytesIO, parse: Parse) -> bool:
        """Return whether every line is an item. Every batch of items is a body that the edge reads."""
        read = list(batches(source, parse))
        for batch in read:
            body = body_of(batch.items)
            if batch.items and not isinstance(body_write_key(body), Done):
                raise Defect(f"an import sends a body that is not JSON: {body[:300]!r}")
        return not any(batch.errors for batch in read)

    def account(self) -> Account:
        """Return nothing more: the answers are complete."""
        return Account()


DOORS: Final[dict[str, Callable[[], Any]]] = {"chain": Chain, "rules": Rules, "texts": Texts}


def guided(seed: int, until: float, report: Path, directory: Path) -> None:
    """Let atheris choose bodies of every route. Ends the process: libFuzzer does so as well."""
    import atheris  # noqa: PLC0415 - optional: it has no package for every system

    for module in (accept, item, messages, request):
        for value in vars(module).values():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                atheris.instrument_func(value)
    door = Chain()
    tally = Tally("in process: bodies chosen by coverage", seed)
    paths = sorted(ROUTES)
    seeds = random.Random(seed)

    def one(data: bytes) -> None:
        if time.monotonic() > until:
            report.write_text(json.dumps(asdict(tally)))
            os._exit(0)
        tally.inputs += 1
        form = data[0] if data else 0
        headers = {"X-Write-Key": "key", "Content-Type": "application/x-protobuf" if form & 1 else "application/json"}
        if form & 2:
            headers["Content-Encoding"] = "gzip"
        given = {"path": paths[(form >> 2) % len(paths)], "body": data[1:], "headers": headers}
        try:
            accepted = door.send(given, tally.inputs)
        except Exception as cause:  # noqa: BLE001 - every exception is a defect
            tally.failures += 1
            if len(tally.reasons) < 20:
                tally.reasons.append(f"{type(cause).__name__}: {cause}"[:500])
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"guided-{seed}-{tally.inputs}.bin").write_bytes(data)
        else:
            tally.accepted += accepted
            tally.refused += not accepted
        tally.dead_letters = door.account().dead_letters

    corpus = directory / f"corpus-{seed}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number in range(300):
        made = door.make(seeds)
        (corpus / str(number)).write_bytes(bytes([seeds.randrange(256)]) + made["body"][:20_000])
    atheris.Setup([sys.argv[0], str(corpus), f"-seed={seed}", "-max_len=20000", "-verbosity=0", "-print_final_stats=0"], one)
    atheris.Fuzz()


def main() -> int:
    """Attack one door, and write its counts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--door", choices=[*DOORS, "guided"], required=True)
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--seconds", type=float, required=True)
    arguments.add_argument("--report", type=Path, required=True)
    parsed_arguments = arguments.parse_args()
    os.nice(19)  # the attacks over sockets, and the platform, come first
    until = time.monotonic() + parsed_arguments.seconds
    directory = parsed_arguments.report.parent
    if parsed_arguments.door == "guided":
        guided(parsed_arguments.seed, until, parsed_arguments.report, directory)
    attack = Attack(DOORS[parsed_arguments.door](), parsed_arguments.seed, directory)
    attack.run(until)
    attack.close_account()
    parsed_arguments.report.write_text(json.dumps(asdict(attack.tally)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
