"""The settings of the events of OpenLineage."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

_UUID: Final = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


class LineageSettings(BaseModel):
    """Events of OpenLineage, which the Spark jobs emit about their runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[
        str | None,
        Field(
            pattern="^(https?://[^@?#/]+(/[^@?#]*)?|file:///[^?#]+)$",
            description="address to which events are sent, without credentials, or a file to which they are appended, one a line; "
            "unset: no events",
            examples=["http://marquez:5000/api/v1/lineage", "file:///var/log/starling/lineage.jsonl"],
        ),
    ] = None
    namespace: Annotated[str, Field(min_length=1, max_length=200, description="namespace of the jobs")] = "starling"
    token_file: Annotated[
        str | None, Field(description="file with the bearer token of the address, which is read for each event; unset: none")
    ] = None
    parent: Annotated[
        str | None,
        Field(
            pattern=f"^.+/[^/]+/{_UUID}$",
            description="run that started the job, such as a task of a scheduler, as namespace/job/run id",
            examples=["airflow/nightly.exports/3f5e83fa-3480-44ff-99c5-ff943904e5e8"],
        ),
    ] = None
    timeout_seconds: Annotated[
        float, Field(gt=0, le=60, description="maximum time of a request, and of the end of a job that has events to send")
    ] = 5.0
