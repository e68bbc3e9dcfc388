"""The settings of the job `exports`."""

import re
from typing import Annotated, Final

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from starling_spark.jobs.exports.definition import ExportDefinition
from starling_spark.lakehouse.settings import LakeSettings

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class ExportSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.exports`; the exports of a run are on its command line."""

    # The addresses of sinks may contain a password by mistake.
    model_config = SettingsConfigDict(hide_input_in_errors=True)

    checkpoint_dir: Annotated[str, Field(description="has no effect: the lake contains the progress of this job")] = "."
    exports: Annotated[
        dict[str, ExportDefinition], Field(description="exports by name, as JSON; see the guide for the fields of one")
    ] = {}
    exports_passwords: Annotated[
        dict[str, SecretStr], Field(description="passwords of the sinks, by the name of the export, as JSON")
    ] = {}

    @field_validator("exports")
    @classmethod
    def _have_names(cls, exports: dict[str, ExportDefinition]) -> dict[str, ExportDefinition]:
        for name in exports:
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"{name[:64]!r} is no name: begin with a small letter, then small letters, digits, _, -")
        return exports
