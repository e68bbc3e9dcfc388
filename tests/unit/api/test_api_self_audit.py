"""The self-audit over states of the real segmenter: a right installation has no finding, and each planted difference is found."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from starling_api.definitions.in_force import Definitions
from starling_api.ports import PartitionProgress
from starling_api.self_audit.comparison import LATE_TIMER_MS, Difference, Recorded, Source, evaluated
from starling_api.self_audit.run import Report, SelfAudit, Stores, User, Window, digest_of
from starling_api.self_audit.service import SelfAuditService
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.settings import Clock
from starling_common.telemetry.metrics import Metrics
from starling_segments import Evaluator, Plan, Segment, UserState, decode_state, encode_state, plan_in_force
from starling_segments.engine.state import Membership
from tests.unit.api.shop import BUYERS, NOW_MS, Site, shop

DAY_MS = 86_400_000


@dataclass
class Shown:
    """What the projector and the segmenter have published: the last change of each user and segment."""

    changes: dict[User, dict[str, Recorded]]
    rows: dict[User, dict[str, Recorded]] = field(default_factory=dict)
    listed: dict[tuple[str, str], int] = field(default_factory=dict)
    is_whole: bool = True
    is_behind: bool = False
    on_read: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, site: Site) -> "Shown":
        changes: dict[User, dict[str, Recorded]] = {}
        for change in site.segmenter.changes():
            changes.setdefault(("acme", change[0]), {})[change[1]] = Recorded(change[2] == "ENTERED", change[3])
        rows = {user: dict(own) for user, own in changes.items()}
        listed = {(user, key): one.sequence for (_, user), own in changes.items() for key, one in own.items() if one.is_member}
        return cls(changes, rows, listed)

    def memberships(self, workspace: str, users: Sequence[str]) -> Sequence[Mapping[str, Recorded]]:
        self.on_read()
        return [dict(self.rows.get((workspace, user), {})) for user in users]

    def members(self, _workspace: str, pairs: Sequence[tuple[str, str]]) -> Sequence[int | None]:
        return [self.listed.get(pair) for pair in pairs]

    def window(self, partition: int) -> Window:
        return Window(partition, 0, None if self.is_whole else 10)

    def read(self, _window: Window) -> Mapping[User, Mapping[str, Recorded]]:
        return {user: dict(own) for user, own in self.changes.items()}

    def awaits(self, _partition: int) -> bool:
        return not self.is_behind


@dataclass
class Audited:
    """A shop, what it has published, and its audit. `waits`: what happens during each pause."""

    site: Site
    shown: Shown
    on_pause: Callable[[], None] = lambda: None

    def run(self, clock: Clock = Clock.EVENT) -> Report:
        world = self.site.world
        definitions = Definitions(world.reader)
        progress = self.site.world.states.progress
        world.states.progress = PartitionProgress(progress.stream_time_ms, definitions.name(), whole=progress.whole)
        stores = Stores(definitions, world.audience, world.states, self.shown, self.shown, self.shown)
        return SelfAudit(stores, 1, clock, 100, self.wait, rng=random.Random(3)).run()

    def wait(self, seconds: float) -> bool:
        if seconds:
            self.on_pause()
        return False

    def change(self, user: str, alter: Callable[[UserState], object]) -> None:
        """Change a state in its store."""
        own = self.site.world.states.users_of["acme"]
        state = decode_state(own[user])
        alter(state)
        own[user] = encode_state(state)


def audited() -> Audited:
    site = shop(buyers=BUYERS, two={"event": "Buy", "op": "gte", "value": 2})
    site.show(NOW_MS + DAY_MS)  # u6 leaves
    return Audited(site, Shown.of(site))


def test_an_installation_without_an_error_has_no_finding() -> None:
    shop_ = audited()
    assert shop_.run() == Report(agreed=40)
    assert {one.is_member for own in shop_.shown.rows.values() for one in own.values()} == {True, False}


def test_segments_are_compiled_once_for_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []

    def counting(segments: Sequence[Segment], paused: AbstractSet[str]) -> Plan:
        compiled.append(len(segments))
        return plan_in_force(segments, paused)

    monkeypatch.setattr("starling_api.self_audit.run.plan_in_force", counting)
    shop_ = audited()
    assert (shop_.run(), compiled) == (Report(agreed=40), [2])


def finding(
    user: str, source: Source, segment: str, expected: Recorded | None, found: Recorded | None
) -> tuple[str, str, Difference]:
    return digest_of(("acme", user)), "acme", Difference(source, segment, expected, found)


def test_each_wrong_record_is_found_and_no_other() -> None:
    shop_ = audited()
    shown = shop_.shown
    shown.rows["acme", "u1"]["buyers"] = Recorded(is_member=False, sequence=1)
    del shown.rows["acme", "u3"]["two"]
    shown.listed["u2", "two"] = 1
    del shown.listed["u3", "buyers"]
    shown.changes["acme", "u5"]["two"] = Recorded(is_member=True, sequence=2)
    del shown.changes["acme", "u7"]["two"]
    shown.rows["acme", "stranger"] = {"buyers": Recorded(is_member=True, sequence=1)}
    shown.changes["acme", "stranger"] = {"buyers": Recorded(is_member=True, sequence=1)}
    one, no = Recorded(is_member=True, sequence=1), None
    report = shop_.run()
    assert sorted(report.findings) == sorted(
        [
            finding("u1", Source.USER_MEMBERSHIPS, "buyers", one, Recorded(is_member=False, sequence=1)),
            finding("u3", Source.USER_MEMBERSHIPS, "two", one, no),
            finding("u2", Source.SEGMENT_MEMBERS, "two", no, one),
            finding("u3", Source.SEGMENT_MEMBERS, "buyers", one, no),
            finding("u5", Source.MEMBERSHIP_STATE, "two", one, Recorded(is_member=True, sequence=2)),
            finding("u7", Source.MEMBERSHIP_STATE, "two", one, no),
            finding("stranger", Source.USER_MEMBERSHIPS, "buyers", no, one),
            finding("stranger", Source.MEMBERSHIP_STATE, "buyers", no, one),
        ]
    )
    assert (report.agreed, report.skipped) == (35, 0)


def test_a_state_that_differs_from_its_evaluation_is_found() -> None:
    shop_ = audited()
    shop_.change("u30", lambda state: state.memberships.update(two=Membership(member=True, sequence=1)))
    published = {"two": Recorded(is_member=True, sequence=1)}
    shop_.shown.rows["acme", "u30"], shop_.shown.changes["acme", "u30"] = published, published
    shop_.shown.listed["u30", "two"] = 1
    one, two = Recorded(is_member=True, sequence=1), Recorded(is_member=False, sequence=2)
    assert shop_.run().findings == [finding("u30", Source.EVALUATION, "two", two, one)]


def test_a_change_between_two_reads_is_no_finding() -> None:
    """The read models are read before the state has the change, and contain it already; and the other way around."""
    shop_ = audited()
    numbers = count()

    def enter() -> None:
        if next(numbers) == 0:
            shop_.site.track("u30", "Buy", NOW_MS + 2 * DAY_MS)
            shop_.site.show(NOW_MS + 2 * DAY_MS)
            progress, name = shop_.site.world.states.progress, Definitions(shop_.site.world.reader).name()
            shop_.site.world.states.progress = progress._replace(plan=name)
            fresh = Shown.of(shop_.site)
            for (_, user), own in fresh.changes.items():
                shop_.shown.changes.setdefault(("acme", user), {}).update(own)
                for key, one in own.items():
                    shop_.shown.listed.pop((user, key), None)
                    shop_.shown.listed |= {(user, key): one.sequence} if one.is_member else {}
            late.update(fresh.rows)

    late: dict[User, dict[str, Recorded]] = {}
    shop_.shown.on_read = enter

    def project() -> None:
        for user, own in late.items():
            shop_.shown.rows.setdefault(user, {}).update(own)

    shop_.on_pause = project
    report = shop_.run()
    assert (report.findings, report.agreed + report.skipped) == ([], 40)
    assert late["acme", "u30"]["buyers"].is_member
    assert report.skipped == 2  # u30 and u5, whose states have changed meanwhile


def test_a_difference_that_ends_is_no_finding() -> None:
    shop_ = audited()
    right = shop_.shown.rows["acme", "u1"].pop("buyers")
    shop_.on_pause = lambda: shop_.shown.rows["acme", "u1"].update(buyers=right)
    assert shop_.run() == Report(agreed=40)


def test_a_projector_that_is_behind_is_no_finding() -> None:
    shop_ = audited()
    shop_.shown.rows["acme", "u1"].clear()
    shop_.shown.is_behind = True
    assert shop_.run() == Report(agreed=39, skipped=1)


@pytest.mark.parametrize("cause", ["a part of the changelog is missing", "another plan", "no state was ever written"])
def test_states_that_cannot_be_compared_are_skipped(cause: str) -> None:
    shop_ = audited()
    shop_.shown.rows.clear()
    states, definitions = shop_.site.world.states, Definitions(shop_.site.world.reader)
    plan = b"other" if cause == "another plan" else definitions.name()
    states.progress = PartitionProgress(NOW_MS, plan, whole=cause != "a part of the changelog is missing")
    states.never_kept = cause.startswith("no state")
    stores = Stores(definitions, shop_.site.world.audience, states, shop_.shown, shop_.shown, shop_.shown)
    report = SelfAudit(stores, 1, Clock.EVENT, 100, shop_.wait).run()
    assert (report.agreed, report.skipped > 0, report.findings) == (0, True, [])


def test_a_range_of_the_feed_may_have_older_records() -> None:
    shop_ = audited()
    shop_.shown.is_whole = False
    shop_.shown.changes = {
        ("acme", "u6"): {"buyers": Recorded(is_member=True, sequence=1)},  # u6 has left since
        ("acme", "u1"): {"buyers": Recorded(is_member=True, sequence=3)},
    }
    [found] = shop_.run().findings
    assert found == finding(
        "u1", Source.MEMBERSHIP_STATE, "buyers", Recorded(is_member=True, sequence=1), Recorded(is_member=True, sequence=3)
    )


def test_a_user_with_a_due_timer_is_compared_once_it_is_lost() -> None:
    site = shop(buyers=BUYERS)
    running = Definitions(site.world.reader).running("acme")
    evaluator = Evaluator(plan_in_force(list(running.segments.values()), running.paused))
    state = site.world.states.users_of["acme"]["u1"]
    due = evaluator.next_due(decode_state(state))
    assert due is not None
    assert evaluated(evaluator, state, due - 1, Clock.WALL) == []
    assert evaluated(evaluator, state, due, Clock.WALL) is None
    assert evaluated(evaluator, state, due + LATE_TIMER_MS, Clock.EVENT) is None
    assert evaluated(evaluator, state, due + LATE_TIMER_MS, Clock.WALL) == [
        Difference(Source.EVALUATION, "buyers", Recorded(is_member=False, sequence=2), Recorded(is_member=True, sequence=1))
    ]


def test_findings_are_counted_and_logged_without_personal_data() -> None:
    shop_ = audited()
    shop_.shown.rows["acme", "u1"].pop("buyers")
    metrics, stopping = Metrics(CollectorRegistry()), threading.Event()
    service = SelfAuditService(shop_.run, metrics, 3600, stopping)
    assert value(metrics, "differences_total", source="user_memberships") == 0
    with capture_logs() as logged:
        assert service.audit()
    [entry] = [one for one in logged if one["event"] == "membership_differs"]
    assert entry == {
        "event": "membership_differs",
        "log_level": "error",
        "user": digest_of(("acme", "u1")),
        "workspace": "acme",
        "segment": "buyers",
        "source": "user_memberships",
        "expected": "member, sequence 1",
        "found": "no record",
    }
    assert value(metrics, "differences_total", source="user_memberships") == 1
    assert value(metrics, "differences_total", source="segment_members") == 0
    assert [value(metrics, "users_total", result=result) for result in ("agreed", "differs", "skipped")] == [39, 1, 0]


def test_an_audit_that_fails_is_repeated_and_changes_no_time_of_completion() -> None:
    def fails() -> Report:
        raise DatabaseUnavailable("away")

    metrics = Metrics(CollectorRegistry())
    service = SelfAuditService(fails, metrics, 3600)
    before = value(metrics, "completed_timestamp_seconds")
    assert not service.audit()
    assert value(metrics, "completed_timestamp_seconds") == before


@pytest.mark.parametrize("is_stopping", [False, True])
def test_an_error_of_the_audit_ends_no_process_and_is_logged(is_stopping: bool) -> None:
    def fails() -> Report:
        raise KeyError("segment")

    stopping = threading.Event()
    service = SelfAuditService(fails, Metrics(CollectorRegistry()), 3600, stopping)
    if is_stopping:
        stopping.set()
    with capture_logs() as logged:
        assert not service.audit()
    assert [one["event"] for one in logged] == ([] if is_stopping else ["self_audit_failed"])


def test_an_audit_that_is_switched_off_has_no_metrics() -> None:
    metrics = Metrics(CollectorRegistry())
    service = SelfAuditService(Report, metrics, 0)
    service.start()
    service.stop()
    assert list(metrics.registry.collect()) == []


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"starling_api_self_audit_{name}", labels)
