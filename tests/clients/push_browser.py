"""A notification from the process of the channel to the screen of a real Chromium, through the service worker of the guide.

`make push-browser` runs it. The push service is one of our own, a real server over TLS that decrypts with the package http-ece. The
DevTools protocol delivers what it decrypted: a browser subscribes only at the push service of its vendor, which is not part of the
test.
"""

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec

from starling_common.time.instants import wall_clock_ms
from tests.campaign_documents import campaign
from tests.conftest import ROOT, Stack
from tests.contract.delivery.endpoint import answering
from tests.contract.delivery.push_services import Browser, Certificates, TlsEndpoint, public_bytes, raw_key, vapid_claims
from tests.integration.delivery.mail_world import MailWorld
from tests.integration.delivery.world import wait_for

HERE = Path(__file__).parent
INSTALLED = ROOT / "out" / "published-clients"
GUIDE = ROOT / "docs" / "how-to" / "push.md"
WITH_URL = {
    "title": "Grüße, {{ traits.name }} 🐦",
    "body": 'Noch 2 "Plätze" für <b>dich</b>',
    "url": "https://shop.example/{{ user_id }}",
}
WITHOUT_URL = {"title": "News", "body": "For {{ traits.name }}"}


@pytest.fixture
def world(stack: Stack) -> Iterator[MailWorld]:
    made = MailWorld(stack, f"push{uuid.uuid4().hex[:10]}")
    topics = made.make_topics()
    yield made
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for pending in admin.delete_topics(topics).values():
        pending.result()


def documented_worker(text: str) -> tuple[str, str]:
    """The code of the service worker in a guide, and the address at which the guide registers it."""
    blocks = [dedent(block) for block in re.findall(r"^ *```js\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)]
    [worker] = [block for block in blocks if 'addEventListener("push"' in block]
    [address] = re.findall(r'serviceWorker\.register\("([^"]+)"\)', text)
    return worker, address


def shown_in_chromium(payloads: list[str], folder: Path) -> list[dict[str, Any]]:
    """For each payload the notifications that Chromium shows, and what a click on the first one does."""
    worker, address = documented_worker(GUIDE.read_text())
    (folder / "worker.js").write_text(worker)
    browser = os.environ.get("STARLING_CHROMIUM", "/usr/bin/chromium")
    command = ["node", str(HERE / "push_browser.mjs"), str(folder / "worker.js"), address, browser]
    done = subprocess.run(
        command, cwd=INSTALLED, input=json.dumps(payloads), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_worker_of_the_guide_shows_what_was_pushed_and_opens_its_address(world: MailWorld, tmp_path: Path) -> None:
    certificates, browser, key = Certificates(tmp_path), Browser(), ec.generate_private_key(ec.SECP256R1())
    service = TlsEndpoint(certificates)
    service.respond = answering(201)
    world.define("target", {"key": "web", "channel": "webpush", "subject": "mailto:a@b.example", "private_key": raw_key(key)})
    for name, content in (("offer", WITH_URL), ("news", WITHOUT_URL)):
        variants = [{"key": "a", "weight": 100, "content": content}]
        world.define("campaign", campaign("push", key=name, target="web", variants=variants), "ACTIVATED")
        address = browser.subscription(f"{service.url}/{name}")
        world.ask(
            ["ada"], "push", address=address, device=address, campaign=name, delivery_id=f"delivery-of-{name}",
            expires_at=wall_clock_ms() + 600_000,
        )  # fmt: skip
    settings = {
        "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
        "STARLING_CHANNELS": '["push"]',
        "STARLING_PUSH__CA_FILE": certificates.ca_file,
    }
    try:
        with world.process(**settings):
            wait_for(lambda: sorted(world.outcomes().get("ada", [])) == ["SENDING", "SENDING", "SENT", "SENT"])
    finally:
        service.close()
    requests = {request.path: request for request in service.requests}
    assert len(service.requests) == 2
    for request in requests.values():
        claims, public = vapid_claims(request.headers["authorization"], service.url)
        assert (claims["sub"], public) == ("mailto:a@b.example", public_bytes(key))
        assert (request.headers["content-encoding"], 0 < int(request.headers["ttl"]) <= 600) == ("aes128gcm", True)

    offer, news = shown_in_chromium([browser.decrypted(requests[path].body) for path in ("/offer", "/news")], tmp_path)
    url = "https://shop.example/ada"
    assert offer == {
        "shown": [
            {
                "title": "Grüße, Ada 🐦",
                "body": 'Noch 2 "Plätze" für <b>dich</b>',
                "data": {"url": url, "delivery_id": "delivery-of-offer"},
            }
        ],
        "opened": [url],
        "awaited": 1,
    }
    assert news == {
        "shown": [{"title": "News", "body": "For Ada", "data": {"delivery_id": "delivery-of-news"}}],
        "opened": [],
        "awaited": 0,
    }
