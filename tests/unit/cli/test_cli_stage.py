import pytest

from starling_cli.commands import stage
from starling_local.errors import NotPossible


@pytest.mark.parametrize("command", [stage.resume, stage.accept_loss])
@pytest.mark.parametrize("name", ["ingest", "backfill"])
def test_a_stage_without_a_consumer_group_of_its_own_is_refused(command: object, name: str) -> None:
    assert callable(command)
    with pytest.raises(
        NotPossible, match=f"there is no stage {name} .*; the stages are normalizer, segmenter, profiles, messenger, webhook"
    ):
        command(name)


def test_only_the_projector_is_rewound(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[object, ...]] = []
    monkeypatch.setattr(stage, "operate", lambda *words: called.append(words))
    stage.rewind("projector-events")
    assert called == [(None, "projector-events", "rewind")]
    for name in ("webhook", "segmenter", "ingest"):
        with pytest.raises(NotPossible, match="only projector and projector-events can be rewound"):
            stage.rewind(name)


@pytest.mark.parametrize(("command", "word"), [(stage.resume, "resume"), (stage.accept_loss, "accept-loss")])
def test_a_command_is_passed_to_the_stream_layer(monkeypatch: pytest.MonkeyPatch, command: object, word: str) -> None:
    called: list[tuple[object, ...]] = []
    monkeypatch.setattr(stage, "operate", lambda *words: called.append(words))
    assert callable(command)
    command("segmenter")
    assert called == [(None, "segmenter", word)]


@pytest.mark.parametrize(("command", "word"), [(stage.resume, "resume"), (stage.accept_loss, "accept-loss")])
@pytest.mark.parametrize("name", ["profiles", "lake", "views"])
def test_a_command_for_a_spark_job_changes_its_checkpoints(
    monkeypatch: pytest.MonkeyPatch, command: object, word: str, name: str
) -> None:
    called: list[tuple[object, ...]] = []
    monkeypatch.setattr(stage, "operate_spark", lambda *words: called.append(words))
    assert callable(command)
    command(name)
    assert called == [(None, name, word)]
