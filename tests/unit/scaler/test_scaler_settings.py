"""The settings of the scaler, and the rules that follow from them."""

import pytest

from starling_scaler.settings import ScaledSegmenter, ScalerSettings
from starling_scaler.wiring import rules_of, stages_of

ENVIRONMENT = {
    "STARLING_HTTP__PORT": "8080",
    "STARLING_INSTANCE_ID": "scaler-0",
    "STARLING_NAMESPACE": "starling",
    "STARLING_PROFILE_PARTITIONS": "64",
    "STARLING_SEGMENTER__STATEFUL_SET": "starling-segmenter",
}


def settings_of(monkeypatch: pytest.MonkeyPatch, **more: str) -> ScalerSettings:
    for name, value in {**ENVIRONMENT, **more}.items():
        monkeypatch.setenv(name, value)
    return ScalerSettings()


def test_a_stage_that_is_named_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, STARLING_SEGMENTER__MAX_REPLICAS="12", STARLING_CALM_SECONDS="60")
    [stage] = stages_of(settings)
    assert (stage.name, stage.stateful_set) == ("segmenter", "starling-segmenter")
    assert settings.segmenter is not None
    rules = rules_of(settings, settings.segmenter)
    assert (rules.partitions, rules.least, rules.most, rules.calm_seconds) == (64, 2, 12, 60)


def test_without_a_stage_the_scaler_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_of(monkeypatch)
    monkeypatch.delenv("STARLING_SEGMENTER__STATEFUL_SET")
    with pytest.raises(ValueError, match="nothing to scale: set STARLING_NORMALIZER__STATEFUL_SET"):
        ScalerSettings()


def test_a_window_below_the_interval_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="a rate needs two samples"):
        settings_of(monkeypatch, STARLING_WINDOW_SECONDS="5")


def test_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min_replicas \(9\) is above max_replicas \(8\)"):
        ScaledSegmenter(stateful_set="s", min_replicas=9)
    with pytest.raises(ValueError, match=r"cpu_scale_in \(0.7\) has to be below cpu_target \(0.7\)"):
        ScaledSegmenter(stateful_set="s", cpu_scale_in=0.7)
