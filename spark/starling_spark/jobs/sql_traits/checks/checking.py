"""Adapter: the checks of a run, evaluated on its result before it is published, and their outcome in the lake and in Cassandra."""

import json
from dataclasses import dataclass

from pyspark.sql import DataFrame

from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_rules.sql.checks import ERROR, checks_of, document_of, message_of, outcome_of
from starling_spark.jobs.sql_traits.checks.measuring import measured, misfit
from starling_spark.jobs.sql_traits.checks.quality import QualityResults
from starling_spark.jobs.sql_traits.store import Run, RunStore
from starling_spark.jobs.sql_traits.values import ResultRefused


class CheckFailed(Exception):
    """A check with the severity `error` failed: the result is not published. The text has what each such check has observed."""


@dataclass(frozen=True, slots=True)
class Checking:
    """Evaluates the checks of one run. `kind`: of its definition."""

    run: Run
    kind: str
    store: RunStore
    quality: QualityResults

    @property
    def is_needed(self) -> bool:
        """Return whether the definition has checks."""
        return self.run.checks is not None

    def refuse_misfits(self, result: DataFrame) -> None:
        """Raise ResultRefused for a check of a column that the result has not, or whose type does not fit."""
        problem = misfit(result.schema, checks_of(json.loads(self.run.checks or "[]")))
        if problem is not None:
            raise ResultRefused(problem)

    def check(self, as_of_ms: int, result: DataFrame, rows: int) -> None:
        """Evaluate the checks and store their outcome. `rows`: the number of rows to publish; of a trait, that of users.

        Raises: CheckFailed, and the errors of Spark.
        """
        if self.run.checks is None:
            return
        checks = checks_of(json.loads(self.run.checks))
        before = None if self.run.result is None else self.run.users
        found = measured(result, checks, rows, before)
        outcomes = [outcome_of(check, values, as_of_ms) for check, values in zip(checks, found, strict=True)]
        checked_at_ms = wall_clock_ms()
        self.quality.record(self.run, self.kind, outcomes, as_of_ms, checked_at_ms)
        documents = [document_of(outcome) for outcome in outcomes]
        self.store.set_checked(self.run, json.dumps({"checked_at_ms": checked_at_ms, "checks": documents}))
        for document in documents:
            if not document["passed"]:
                place = {"workspace": self.run.workspace, "kind": self.kind, "key": self.run.key}
                log(__name__).warning("quality_check_failed", **place, **document)
        problem = message_of(outcomes, ERROR)
        if problem is not None:
            raise CheckFailed(problem)
