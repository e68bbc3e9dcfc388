"""The real process of the channel email, with the real broker and an SMTP server: a mail arrives once, or its loss is known."""

import email
import email.policy
import signal
import ssl
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dkim
import pytest
from confluent_kafka.admin import AdminClient

from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_ms
from starling_policy import address_digest
from tests.certificates import Authority
from tests.conftest import Stack
from tests.integration.delivery.mail_world import MailWorld, context
from tests.integration.delivery.smtp_sink import SmtpSink
from tests.integration.delivery.world import wait_for
from tests.unit.delivery.messages import key_pair, mail_campaign, smtp_target

IN_FLIGHT = 8


@pytest.fixture
def world(stack: Stack) -> Iterator[MailWorld]:
    made = MailWorld(stack, f"mail{uuid.uuid4().hex[:10]}")
    topics = made.make_topics()
    yield made
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for pending in admin.delete_topics(topics).values():
        pending.result()


@pytest.fixture
def sink() -> Iterator[SmtpSink]:
    made = SmtpSink()
    yield made
    made.close()


def message_ids(sink: SmtpSink) -> list[str]:
    return [email.message_from_bytes(data, policy=email.policy.default)["Message-ID"] for _, data in sink.mails]


def test_mails_arrive_once_signed_and_each_refusal_has_its_outcome(world: MailWorld, sink: SmtpSink) -> None:
    private, public = key_pair()
    refusals = {
        "gone@customers.example.net": "550 5.1.1 no such user",
        "grey@customers.example.net": "450 4.2.0 greylisted",
        "spam@customers.example.net": "554 5.6.0 refused",
    }
    sink.at_recipient = lambda address, number: refusals.get(address) if number == 1 and not address.startswith("spam") else None
    sink.at_data = lambda address, _: refusals[address] if address.startswith("spam") else None
    world.define_all(sink.port, dkim={"domain": "example.com", "selector": "s1", "private_key": private})
    world.write(
        "suppressions",
        b"k",
        {
            "received_at": 1, "workspace": "default", "channel": "email", "digest": address_digest("sue@customers.example.net"),
            "kind": "uploaded", "changed_at": 1, "correlation_id": "c",
        },
    )  # fmt: skip
    users = [f"u{number}" for number in range(60)]
    world.ask([*users[:30], "gone", "grey", "spam", "sue"])
    world.ask(users[30:], kind="bulk")
    world.ask(["eve"], address="eve@example.net\r\nRCPT TO:<mallory@example.net>")
    world.ask(["ina"], context=context(name="Ina\r\nBcc: mallory@example.net"))
    world.ask(["old"], expires_at=1)
    world.ask(["tess"], is_test=True)
    with world.process():
        wait_for(lambda: len(sink.mails) == 62)
        wait_for(lambda: all(found[-1] != "SENDING" for found in world.outcomes().values()) and len(world.outcomes()) == 67)
        world.ask(["gone"], delivery_id="another")
        wait_for(lambda: world.outcomes("gone")["gone"][-1] == "SUPPRESSED suppressed")
    found = world.outcomes()
    assert {user: found[user] for user in users} == {user: ["SENDING", "SENT"] for user in users}
    assert found["grey"] == ["SENDING", "RETRYING", "SENDING", "SENT"]
    assert found["gone"] == ["SENDING", "BOUNCED", "SUPPRESSED suppressed"]
    assert found["sue"] == ["SUPPRESSED suppressed"]
    assert found["spam"] == ["SENDING", "FAILED 554 5.6.0 refused"]
    assert found["old"] == ["FAILED expired"]
    assert "tess" not in found  # a test is sent and counted nowhere
    assert [data for address, data in sink.mails if b"Subject: [Test] Hello Tess" in data] != []
    assert found["eve"][-1].startswith("FAILED no_address")
    assert found["ina"][-1].startswith("FAILED template_error: subject")
    assert Counter(message_ids(sink)).most_common(1)[0][1] == 1
    assert not any("mallory" in recipient for recipient in sink.recipients())
    [bounced] = [record for record in world.records("suppressions") if record["kind"] == "hard_bounce"]
    assert bounced["digest"] == address_digest("gone@customers.example.net")
    for _, data in sink.mails:
        assert dkim.verify(data, dnsfunc=lambda *_, **__: public)
    assert sink.connections <= IN_FLIGHT * 8  # far fewer than mails: they are used again
    assert {letter["code"] for letter in world.records("dead_letter")} == {"not_delivered"}


@pytest.mark.long
@pytest.mark.parametrize("point", ["after_sending", "in_send", "after_send", "before_outcome"])
def test_a_process_killed_at_each_point_sends_no_mail_twice_and_few_are_unknown(
    world: MailWorld, sink: SmtpSink, point: str
) -> None:
    world.define_all(sink.port)
    users = [f"u{number}" for number in range(120)]
    world.ask(users)
    unknown: set[str] = set()
    for kill in range(3):
        with world.process(STARLING_FAILPOINT=f"{point}:{5 + 7 * kill}", STARLING_MAX_IN_FLIGHT=str(IN_FLIGHT)) as process:
            assert process.wait(60) == -signal.SIGKILL
        world.end_transactions()
        hanging = {user for user, outcomes in world.outcomes().items() if outcomes[-1] == "SENDING"}
        assert 0 < len(hanging - unknown) <= IN_FLIGHT
        unknown |= hanging
    with world.process(STARLING_MAX_IN_FLIGHT=str(IN_FLIGHT)):
        wait_for(lambda: {user for user, found in world.outcomes().items() if found[-1] == "SENT"} == set(users) - unknown)
    found = world.outcomes()
    assert all(outcomes[-1] == "SENDING" and outcomes.count("SENDING") == 1 for user, outcomes in found.items() if user in unknown)
    assert all(found[user].count("SENDING") == found[user].count("SENT") == 1 for user in set(users) - unknown)
    ids = Counter(message_ids(sink))
    assert ids.most_common(1)[0][1] == 1
    assert {f"<delivery-of-{user}@example.com>" for user in set(users) - unknown} <= ids.keys()


@pytest.mark.long
def test_a_suspended_process_sends_nothing_that_another_one_has_taken_over(world: MailWorld, sink: SmtpSink) -> None:
    world.define_all(sink.port)
    users = [f"u{number}" for number in range(60)]
    # The second process has the same instance id: the group and the transactions of the first are taken over at once.
    with world.process(STARLING_FAILPOINT="after_sending:20:stop", STARLING_MAX_IN_FLIGHT=str(IN_FLIGHT)) as first:
        world.ask(users)  # not before: a process that is suspended during its start never reports that it is ready
        wait_for(lambda: Path(f"/proc/{first.pid}/stat").read_text().split(") ")[1].startswith("T"))
        with world.process():
            wait_for(lambda: world.outcomes().keys() == set(users))
            world.ask(["last"])
            wait_for(lambda: world.outcomes("last") == {"last": ["SENDING", "SENT"]})
            first.send_signal(signal.SIGCONT)
            first.wait(60)
            assert first.returncode != 0
    ids = Counter(message_ids(sink))
    assert ids.most_common(1)[0][1] == 1
    lost = [user for user, outcomes in world.outcomes().items() if outcomes == ["SENDING"]]
    assert len(lost) <= IN_FLIGHT


@pytest.mark.long
def test_paused_and_archived_campaigns_and_changed_consent_stop_what_is_queued(world: MailWorld, sink: SmtpSink) -> None:
    world.define("target", smtp_target(sink.port))
    world.define("campaign", mail_campaign(), "PAUSED")
    world.define("campaign", mail_campaign(key="other"), "PAUSED")
    with world.process():
        world.ask(["ada", "bob"])
        world.ask(["cleo"], campaign="other")
        wait_for(
            lambda: (
                {user: found[0] for user, found in world.outcomes().items()} == dict.fromkeys(("ada", "bob", "cleo"), "RETRYING")
            )
        )
        refusal = {
            "received_at": 1, "workspace": "default", "user_id": "bob", "channel": "email", "purpose": None, "granted": False,
            "source": "page", "changed_at": wall_clock_ms(), "correlation_id": "c",
        }  # fmt: skip
        world.write("consent", b"k", refusal)
        world.define("campaign", mail_campaign(key="other"), "ARCHIVED")
        wait_for(lambda: "SUPPRESSED archived" in world.outcomes("cleo")["cleo"])
        world.define("campaign", mail_campaign(), "ACTIVATED")
        wait_for(lambda: len(sink.mails) == 1)
        wait_for(lambda: world.outcomes("bob")["bob"][-1] == "SUPPRESSED no_consent")
        wait_for(lambda: world.outcomes("ada")["ada"] == ["RETRYING", "SENDING", "SENT"])
    assert sink.recipients() == ["ada@customers.example.net"]


@pytest.mark.long
def test_a_server_that_is_away_opens_the_circuit_and_gets_each_mail_later(world: MailWorld) -> None:
    port = free_port()
    world.define_all(port)
    with world.process(STARLING_PROBE_SECONDS="0.5"):
        world.ask([f"u{number}" for number in range(20)])
        wait_for(lambda: len(world.outcomes()) == 20)
        back = SmtpSink(at_port=port)
        try:
            wait_for(lambda: len(back.mails) == 20)
            wait_for(lambda: {found[-1] for found in world.outcomes().values()} == {"SENT"})
        finally:
            back.close()
    assert max(Counter(message_ids(back)).values()) == 1


@pytest.mark.filterwarnings("ignore:Requiring AUTH:UserWarning")  # the library knows of STARTTLS only
@pytest.mark.parametrize("way", ["starttls", "tls"])
def test_a_server_with_tls_and_a_password(world: MailWorld, tmp_path: Path, way: str) -> None:
    authority = Authority("mail")
    certificate, key = authority.issue("smtp")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "own.pem").write_bytes(certificate + key)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(tmp_path / "own.pem")
    sink = SmtpSink(tls=own, is_smtps=way == "tls", login=("shop", "secret"))
    try:
        world.define_all(sink.port, tls=way, username="shop", password="secret")
        with world.process(STARLING_EMAIL__CA_FILE=str(tmp_path / "ca.pem"), STARLING_FAILURES_BEFORE_PAUSE="50"):
            world.ask(["ada"])
            wait_for(lambda: world.outcomes() == {"ada": ["SENDING", "SENT"]})
            world.define("target", smtp_target(sink.port, tls=way, username="shop", password="wrong"), "REVISED", 2)
            world.ask(["bob"])
            wait_for(lambda: "RETRYING" in world.outcomes("bob").get("bob", []))
    finally:
        sink.close()
    assert sink.recipients() == ["ada@customers.example.net"]
