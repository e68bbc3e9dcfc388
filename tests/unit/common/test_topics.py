"""The catalogue of topics is complete, and errors name the topic."""

import pytest

from starling_campaigns.channels import SENT_CHANNELS
from starling_common.kafka import topics
from starling_common.schemas import schema_directory
from starling_stream.model.rows import MAX_STATE_BYTES


def test_every_topic_named_in_code_is_in_the_catalogue() -> None:
    constants = {value for name, value in vars(topics).items() if name.isupper() and isinstance(value, str)}
    prefixes = {topics.REQUESTS, topics.BULK}
    assert (constants - prefixes) | set(topics.INGEST_TOPICS) <= topics.load_catalogue().topics.keys()


@pytest.mark.parametrize("channel", sorted(SENT_CHANNELS))
def test_every_channel_of_campaigns_has_its_topics(channel: str) -> None:
    assert {topics.request_topic(channel), topics.bulk_topic(channel)} <= topics.load_catalogue().topics.keys()


def test_every_topic_has_a_schema_and_every_schema_a_topic() -> None:
    used = {topic.schema for topic in topics.load_catalogue().topics.values()}
    assert used == {path.stem for path in schema_directory().glob("*.avsc")}


def test_profile_keyed_topics_have_one_number_of_partitions() -> None:
    catalogue = topics.load_catalogue(profile_partitions=24)
    assert {topic.partitions for topic in catalogue.topics.values() if topic.profile_keyed} == {24}
    assert catalogue.profile_partitions == 24


def test_the_inputs_of_a_stage_are_profile_keyed_where_they_must_meet() -> None:
    catalogue = topics.load_catalogue()
    for name in ("normalizer", "segmenter"):
        assert all(catalogue.topics[topic].profile_keyed for topic in topics.stage(name).inputs)


def test_event_and_membership_topics_promise_full_compatibility() -> None:
    assert {topic.compatibility for topic in topics.load_catalogue().topics.values()} == {"FULL_TRANSITIVE"}


def test_a_state_and_a_dead_letter_may_be_larger_than_what_they_hold() -> None:
    found = {(topic.schema, topic.max_record_bytes) for topic in topics.load_catalogue().topics.values()}
    sizes = dict(found)
    assert len(sizes) == len(found)  # every topic of a schema alike
    assert sizes["StateChanged"] == sizes["StateBackfilled"] == topics.MAX_RECORD_BYTES >= 2 * MAX_STATE_BYTES
    assert (sizes["DeadLetter"] or 0) > 1_048_588  # the largest record that a topic takes by default
    assert sizes["BehaviourEvent"] is None


def test_the_retention_of_dead_letters_counts_from_their_refusal() -> None:
    letters = [topic for topic in topics.load_catalogue().topics.values() if topic.schema == "DeadLetter"]
    assert [topic.name for topic in letters if not topic.broker_timestamps] == []


@pytest.mark.parametrize("text", ["2MB", "9MiB", "1.5MiB", ""])
def test_a_size_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"topics\.yaml: t: max_record: expected e\.g\. 2MiB, at most 8MiB"):
        topics._size_bytes("t", text)
