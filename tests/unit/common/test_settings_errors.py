"""A process with wrong settings ends with their names. No value is printed: it could be a password or a key."""

from collections.abc import Iterator

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

from starling_common.deploy import DeploySettings
from starling_common.kafka.access.deploy import AclSettings
from starling_common.verify import VerifySettings
from starling_scaler.settings import ScalerSettings
from starling_spark.lost_input import LostInputSettings
from starling_stream.inspect.operations import OperationSettings
from tools.chart_schema import MODELS, variables

MORE = (DeploySettings, AclSettings, VerifySettings, LostInputSettings, OperationSettings)
EVERY = {**MODELS, **{one.__name__: one for one in MORE}}
MARK = "planted"


def _models() -> Iterator[type[BaseSettings]]:
    pending = [BaseSettings]
    while pending:
        found = pending.pop().__subclasses__()
        pending += found
        yield from (one for one in found if one.__module__.startswith("starling_"))


@pytest.mark.parametrize("model", EVERY.values(), ids=EVERY)
def test_an_error_names_the_setting_and_not_its_value(model: type[BaseSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name, _ in variables(model)]
    secret = [name for name in names if name.endswith(("PASSWORD", "KEYS", "TOKENS"))]
    assert secret or model is ScalerSettings
    for given in (secret, names):
        with monkeypatch.context() as environment:
            for name in names:
                environment.delenv(name, raising=False)
            for name in given:
                environment.setenv(name, f"{MARK}={name}")
            with pytest.raises((ValidationError, SettingsError)) as caught:
                model()
        assert MARK not in str(caught.value)


def test_every_model_that_is_read_from_the_environment_hides_its_input() -> None:
    models = list(_models())
    assert len(models) > 20
    assert [one.__name__ for one in models if not one.model_config.get("hide_input_in_errors")] == []
