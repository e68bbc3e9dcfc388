"""Pure core: the description of an export, from the settings."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from starling_common.values import deterministic_id


class ExportDefinition(BaseModel):
    """One export. `columns`: beside those of the key and the version; None: all."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    source: Annotated[str, Field(min_length=1)]
    sink: str
    to: str
    table: str | None = None
    workspace: str | None = None
    columns: tuple[str, ...] | None = None
    max_rejects: Annotated[int, Field(ge=0, le=100_000)] = 1_000

    def fingerprint(self, name: str) -> str:
        """Return a text that changes if the rows or their destination do: the export then begins at the start."""
        columns = "*" if self.columns is None else ",".join(self.columns)
        return deterministic_id("export", name, self.source, self.sink, self.to, self.table, self.workspace, columns)
