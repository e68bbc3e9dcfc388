"""One trace from the HTTP request of an event to the request of a webhook, as a collector receives it."""

import base64
import os
import uuid

from starling_demo.receiver import Receiver
from tests.integration.stream.rig import wait_until
from tests.otlp import Collector, Recorded
from tests.system.conftest import Platform
from tests.system.live import define

SECRET = "whsec_" + base64.b64encode(os.urandom(32)).decode()
EDGE = ("starling-ingest", "POST /v1/track")
NORMALIZER = ("starling-normalizer", "normalizer ingest.track")
SEGMENTER = ("starling-segmenter", "segmenter events.behaviour")
SEND = ("starling-delivery-webhook", "send webhook")


class Traced(Receiver):
    """A receiver that keeps the trace context of each request."""

    def __post_init__(self) -> None:
        self.traceparents: list[str | None] = []
        super().__post_init__()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        self.traceparents.append(headers.get("traceparent"))
        return super().take(headers, body)


def test_one_trace_has_the_spans_of_all_stages_up_to_the_webhook(live: Platform, collector: Collector) -> None:
    name, user, trace_id, sender = (
        f"Order {uuid.uuid4().hex}",
        f"traced-{uuid.uuid4().hex}",
        os.urandom(16).hex(),
        os.urandom(8).hex(),
    )
    key = define(live, {"event": name})
    receiver = Traced(SECRET, failures=1)
    try:
        answer = live.api.post("/v1/webhooks", json={"key": key, "url": receiver.url, "secret": SECRET, "segments": [key]})
        assert answer.status_code == 201, answer.text
        live.settle()
        headers = {"traceparent": f"00-{trace_id}-{sender}-01", "X-Correlation-Id": f"order-{user}"}
        answer = live.ingest.post("/v1/track", json={"userId": user, "event": name}, headers=headers)
        assert answer.status_code == 200, answer.text

        def ours() -> dict[tuple[str, str], list[Recorded]]:
            found: dict[tuple[str, str], list[Recorded]] = {}
            for span in collector.spans():
                if span.trace_id == trace_id:
                    found.setdefault((span.service, span.name), []).append(span)
            return found

        # Each service exports its spans in batches of its own, so they arrive in any order.
        expected = {EDGE: 1, NORMALIZER: 1, SEGMENTER: 1, SEND: 2}
        wait_until(
            lambda: {stage: len(ours().get(stage, [])) for stage in expected} == expected,
            "the spans of all stages and both attempts",
            60,
            details=lambda: str({stage: len(found) for stage, found in ours().items()}),
        )
    finally:
        receiver.close()
    spans = ours()
    [edge], [normalizer], [segmenter] = spans[EDGE], spans[NORMALIZER], spans[SEGMENTER]
    attempts = sorted(spans[SEND], key=lambda span: span.attributes["starling.attempt"])
    assert [span.attributes["http.response.status_code"] for span in attempts] == ["503", "204"]
    chain = [edge, normalizer, segmenter]
    assert [span.parent_id for span in chain] == [sender, edge.span_id, normalizer.span_id]
    assert [span.parent_id for span in attempts] == [segmenter.span_id] * 2
    assert [span.kind for span in (*chain, *attempts)] == ["SERVER", "CONSUMER", "CONSUMER", "CLIENT", "CLIENT"]
    assert {span.attributes["starling.correlation_id"] for span in (*chain, *attempts)} == {f"order-{user}"}
    assert receiver.traceparents == [f"00-{trace_id}-{span.span_id}-01" for span in attempts]
    assert user not in str([span.attributes for own in spans.values() for span in own]).replace(f"order-{user}", "")
