"""Compares a settled platform from outside: its topics and its HTTP answers, against the fold of what was accepted."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import httpx

from starling_common.kafka.topics import (
    BEHAVIOUR,
    CLOCK,
    INGEST_TOPICS,
    MEMBERSHIP,
    MEMBERSHIP_STATE,
    OUTCOMES,
    PROFILE,
    load_catalogue,
)
from starling_common.wire import Registry
from tests.faults.findings import Findings, check_feed, check_memberships
from tests.faults.log import Logged, read_all
from tests.faults.oracle import Truth, folded
from tests.faults_platform.truth import Accepted, User, accepted
from tests.faults_platform.webhooks import Arrived, check_webhooks

_PAGE: Final = 1000
COMPUTED: Final = ("spent", "orders")

Log = Mapping[str, Mapping[int, Sequence[Logged]]]


class PlatformCheck:
    """One comparison. Nothing may be written meanwhile."""

    def __init__(self, brokers: str, registry_url: str, api: httpx.Client, wheres: Mapping[str, Any], *, computed: bool) -> None:
        """`wheres`: the segments of the run; `computed`: whether the computed traits of the run exist."""
        catalogue = load_catalogue().topics
        letters = [name for name in catalogue if name.endswith(".dlq")]
        self.findings = Findings()
        self._letters = letters
        self._computed = computed
        self._api = api
        topics = (*INGEST_TOPICS, OUTCOMES, BEHAVIOUR, PROFILE, CLOCK, MEMBERSHIP, MEMBERSHIP_STATE)
        registry = Registry(registry_url)
        self._codecs = {topic: registry.codec(topic, catalogue[topic].schema) for topic in (*topics, *letters)}
        self._log = read_all(brokers, (*topics, *letters))
        self._accepted: Accepted = accepted(self._log, self._codecs[INGEST_TOPICS[0]], INGEST_TOPICS)
        self._truth: Truth = folded(self._log, self._codecs, wheres, COMPUTED if computed else ())
        self._wheres = wheres

    def all(self, sent: Mapping[str, str], arrived: Sequence[Arrived], subscribed: str) -> Findings:
        """`sent`: message id -> user; `arrived`: messages of the webhook; `subscribed`: its segment."""
        self._items(sent)
        self._outcomes()
        self._events()
        self._profile_changes()
        last = check_feed(self._truth, self._log[MEMBERSHIP], self._codecs[MEMBERSHIP], self.findings)
        check_memberships(last, self._log[MEMBERSHIP_STATE], self._codecs[MEMBERSHIP_STATE], self.findings)
        self._refused()
        self._feed_pages()
        for key in self._wheres:
            self._segment(key)
        for name, user in sorted(self._accepted.users.items()):
            self._user(name, user)
        check_webhooks(self._changes(subscribed), arrived, self.findings)
        return self.findings

    def expected_webhooks(self, segment: str) -> set[str]:
        """The ids of every change of a segment."""
        return {change["event_id"] for change in self._changes(segment)}

    def _changes(self, segment: str) -> list[dict[str, Any]]:
        return [change for changes in self._truth.feed.values() for change in changes if change["segment_key"] == segment]

    def _items(self, sent: Mapping[str, str]) -> None:
        first = self._accepted.first
        self.findings.add("items sent", len(sent))
        self.findings.add("items sent again and taken twice", self._accepted.repeats)
        for message_id in sent.keys() - first.keys():
            self.findings.found("lost", f"item {message_id}")
        for message_id, item in first.items():
            if sent.get(message_id) != item.user:
                self.findings.found("wrong", f"item {message_id} of {item.user}")

    def _outcomes(self) -> None:
        by_origin: Counter[tuple[str, int, int]] = Counter()
        taken: Counter[str] = Counter()
        for record in self._records(OUTCOMES):
            by_origin[record["origin_topic"], record["origin_partition"], record["origin_offset"]] += 1
            taken[record["message_id"]] += record["outcome"] == "ACCEPTED"
            if record["outcome"] not in ("ACCEPTED", "DUPLICATE"):
                self.findings.found("wrong", f"outcome {record['outcome']} of {record['message_id']}: {record['message']}")
        self._counted("outcome of the record", Counter(item.origin for item in self._accepted.items), by_origin)
        self._counted("accepted outcome of", Counter(dict.fromkeys(self._accepted.first, 1)), taken)

    def _events(self) -> None:
        found: Counter[str] = Counter()
        expected = {message_id: item for user in self._accepted.users.values() for message_id, item in user.events.items()}
        for record in self._records(BEHAVIOUR):
            found[record["message_id"]] += 1
            item = expected.get(record["message_id"])
            if item is None:
                continue  # counted below
            same = (record["user_id"], record["name"], record["event_time"]) == (item.user, item.name, item.event_time)
            if not same or not item.body["properties"].items() <= json.loads(record["properties"]).items():
                self.findings.found("wrong", f"event {record['message_id']}: {record}")
        self._counted("event", Counter(dict.fromkeys(expected, 1)), found)

    def _profile_changes(self) -> None:
        expected = {message_id for user in self._accepted.users.values() for message_id in user.identified}
        found = Counter(record["message_id"] for record in self._records(PROFILE))
        others = {message_id for message_id in found if not (message_id or "").startswith("m")}
        self.findings.add("changes of computed traits", sum(found[message_id] for message_id in others))
        self._counted(
            "profile change",
            Counter(dict.fromkeys(expected, 1)),
            Counter({one: n for one, n in found.items() if one not in others}),
        )

    def _refused(self) -> None:
        for topic in self._letters:
            for record in self._records(topic):
                self.findings.found("wrong", f"dead letter in {topic}: {record['code']} {record['message']}")

    def _feed_pages(self) -> None:
        found = Counter(change["event_id"] for change in self._pages("/v1/feed"))
        expected = Counter(change["event_id"] for changes in self._truth.feed.values() for change in changes)
        self._counted("feed page: change", expected, found)

    def _segment(self, key: str) -> None:
        truth = self._truth
        members = {
            user_of(user)
            for user, state in truth.states.items()
            if (held := state.memberships.get(key)) is not None and held.member
        }
        self._counted(
            f"member of {key}:", Counter(members), Counter(row["user_id"] for row in self._pages(f"/v1/segments/{key}/members"))
        )
        statuses = Counter(change["status"] for feed in truth.feed.values() for change in feed if change["segment_key"] == key)
        expected = (statuses["ENTERED"], statuses["EXITED"])
        size = self._get(f"/v1/segments/{key}/size")
        self._equal(f"size of {key}", (*expected, len(members)), (size["entered"], size["exited"], size["size"]))
        days = list(self._pages(f"/v1/segments/{key}/history"))
        total = (sum(day["entered"] for day in days), sum(day["exited"] for day in days))
        self._equal(f"history of {key}", (*expected, len(members)), (*total, days[-1]["size"] if days else 0))

    def _user(self, name: str, user: User) -> None:
        computed = {"computed": {"spent": user.spent, "orders": user.orders}} if self._computed and user.orders else {}
        self._equal(f"profile of {name}", user.traits | computed, self._get(f"/v1/users/{name}").get("traits"))
        rows = [row for row in self._pages(f"/v1/users/{name}/events") if row["message_id"]]
        self._counted(f"event of {name}:", Counter(dict.fromkeys(user.events, 1)), Counter(row["message_id"] for row in rows))
        state = self._truth.states.get(f"default/{name}".encode())
        held = {key for key, one in state.memberships.items() if one.member} if state is not None else set()
        self._equal(f"segments of {name}", held, {row["segment"] for row in self._pages(f"/v1/users/{name}/segments")})

    def _counted(self, what: str, expected: Counter[Any], found: Counter[Any]) -> None:
        self.findings.add(what.partition(" of ")[0].rstrip(":") + "s compared", expected.total())
        for one in expected - found:
            self.findings.found("lost", f"{what} {one}")
        for one in found - expected:
            self.findings.found("doubled" if one in expected else "wrong", f"{what} {one}: {found[one]} times")

    def _equal(self, what: str, expected: object, found: object) -> None:
        self.findings.add(what.partition(" of ")[0] + " compared", 1)
        if expected != found:
            self.findings.found("wrong", f"{what}: {found}, expected {expected}")

    def _records(self, topic: str) -> Iterator[dict[str, Any]]:
        for records in self._log[topic].values():
            for logged in records:
                yield self._codecs[topic].decode(logged.value)

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        answer = self._api.get(path, params=parameters)
        found: dict[str, Any] = answer.json() if answer.status_code == httpx.codes.OK else {}
        if not found:
            self.findings.found("wrong", f"{path}: {answer.status_code} {answer.text[:200]}")
        return found

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        parameters: dict[str, Any] = {"limit": _PAGE}
        while True:
            page = self._get(path, **parameters)
            yield from page.get("items", ())
            if page.get("next_cursor") is None:
                return
            parameters["cursor"] = page["next_cursor"]


def user_of(key: bytes) -> str:
    return key.decode().partition("/")[2]
