"""Adapter: the second check of a statement, on the plan that Spark made of it: what it reads, computes and joins, and how much.

The syntax is checked before (`starling_rules.sql.statement`). A difference between that parser and Spark's must not lead to
a statement with another effect.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

_LEAVES: Final = frozenset({"OneRowRelation", "LocalRelation", "CTERelationRef"})
_RELATION: Final = "DataSourceV2Relation"
_SCAN: Final = "DataSourceV2ScanRelation"
_CLOSED_NODES: Final = re.compile(r"Arrow|Command|Generate|Lateral|MapIn|Pandas|Python|Sample|Script|Serialize|Streaming|Write")
_CLOSED_EXPRESSIONS: Final = re.compile(
    r"CallMethodViaReflection|TryReflect|UDF|UDAF|UDTF|Aggregator|InputFile|CurrentUser|SessionUser|CurrentCatalog|CurrentDatabase|"
    r"SparkVersion|CurrentTimestamp|CurrentDate|LocalTimestamp|Now\b"
)


class PlanRefused(Exception):
    """The plan has an effect or a size that is not allowed; the text names it and the cure."""


def check_plan(statement: DataFrame, tables: Collection[str]) -> None:
    """Raise PlanRefused for a plan that reads anything but these tables of the lake, calls foreign code, or joins all with all."""
    execution = statement._jdf.queryExecution()  # noqa: SLF001 - PySpark has no public access to the plan
    analyzed = execution.analyzed()
    for node in _nodes(analyzed):
        _check_node(node, tables)
    if not analyzed.deterministic():
        raise PlanRefused("the statement depends on chance: its result must be the same when it runs again")
    jvm: Any = statement.sparkSession._jvm  # noqa: SLF001 - as above
    equal_keys = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
    for node in _nodes(execution.optimizedPlan()):
        if _name(node) == "Join" and equal_keys.unapply(node).isEmpty():
            raise PlanRefused(
                "a join has no equal columns of both sides: compare one with =, and write NOT EXISTS instead of NOT IN (SELECT …)"
            )


def scanned_bytes(statement: DataFrame) -> int:
    """Return the estimate of the bytes that the statement reads, after filters that skip files."""
    plan = statement._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - as above
    leaves = (node for node in _nodes(plan) if _name(node) == _SCAN)
    return sum(int(str(leaf.stats().sizeInBytes())) for leaf in leaves)


def _check_node(node: Any, tables: Collection[str]) -> None:
    name = _name(node)
    if _CLOSED_NODES.search(name):
        raise PlanRefused(f"the plan has the step {name}, which is not allowed: write a SELECT with joins, conditions and groups")
    if node.children().isEmpty():
        table = str(node.table().name()) if name == _RELATION else None
        if table is None and name not in _LEAVES:
            raise PlanRefused(f"the plan reads a {name}: read tables alone")
        if table is not None and set(tables).isdisjoint(table.split(".")):
            raise PlanRefused(f"the plan reads {table}: read tables alone")
    for expression in _elements(node.expressions()):
        _check_expression(expression)


def _check_expression(expression: Any) -> None:
    name = _name(expression)
    if _CLOSED_EXPRESSIONS.search(name):
        raise PlanRefused(f"the plan calls {name}, which is not allowed: use the functions of the documentation")
    for part in _elements(expression.children()):
        _check_expression(part)


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield the steps of a plan, those of subqueries in its expressions included."""
    yield plan
    for part in (*_elements(plan.children()), *_elements(plan.subqueries())):
        yield from _nodes(part)


def _elements(sequence: Any) -> Iterator[Any]:
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _name(part: Any) -> str:
    return str(part.getClass().getSimpleName()).removesuffix("$")
