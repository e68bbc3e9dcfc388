"""The job `profiles` at its start without a broker."""

import pytest

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.testing import free_port
from starling_spark.jobs.profiles.wiring import partition_count


def test_the_error_names_the_topic_if_no_broker_responds() -> None:
    with pytest.raises(BrokerUnavailable, match=r"events\.behaviour: .*transport failure"):
        partition_count(f"127.0.0.1:{free_port()}", "events.behaviour", timeout_seconds=0.5)
