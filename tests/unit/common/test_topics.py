"""The catalogue of topics is whole, and says where it is not."""

from starling_common import topics
from starling_common.schemas import schema_directory


def test_every_topic_named_in_code_is_in_the_catalogue() -> None:
    constants = {value for name, value in vars(topics).items() if name.isupper() and isinstance(value, str)}
    assert constants | set(topics.INGEST_TOPICS) <= topics.load_catalogue().topics.keys()


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
