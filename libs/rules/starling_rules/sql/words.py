"""Pure core: the functions, words and syntax that a statement in SQL may use."""

from typing import Final

FUNCTIONS: Final = frozenset({
    # aggregates
    "approx_count_distinct", "approx_percentile", "avg", "bool_and", "bool_or", "count", "count_if", "max", "max_by", "min",
    "min_by", "percentile_approx", "stddev", "stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp", "variance",
    # windows
    "dense_rank", "lag", "lead", "rank", "row_number",
    # numbers
    "abs", "ceil", "exp", "floor", "greatest", "least", "ln", "pmod", "power", "round", "sign", "sqrt", "try_divide",
    # texts
    "concat", "contains", "endswith", "length", "lower", "startswith", "substring", "trim", "upper",
    # arrays
    "array_contains", "size",
    # JSON
    "get_json_object",
    # times
    "date_add", "date_diff", "date_sub", "date_trunc", "datediff", "day", "dayofweek", "hour", "month", "to_date",
    "to_timestamp", "unix_millis", "unix_seconds", "year",
    # conditions and types
    "cast", "coalesce", "if", "ifnull", "isnull", "isnotnull", "nullif", "nvl", "nvl2", "try_cast",
})  # fmt: skip
"""Deterministic functions with a bounded result. Regular expressions are left out: no time limit ends one."""

REPLACEMENTS: Final = {
    "current_date": "date_trunc('DAY', :as_of)",
    "current_timestamp": ":as_of",
    "curdate": "date_trunc('DAY', :as_of)",
    "localtimestamp": ":as_of",
    "now": ":as_of",
    "any_value": "max",
    "first": "min_by(value, event_time)",
    "last": "max_by(value, event_time)",
    "percentile": "percentile_approx",
    "regexp_like": "LIKE",
    "regexp_i_like": "ILIKE",
    "rlike": "LIKE",
}
"""Function that no statement may use -> what it may use instead."""

BEFORE_PARENTHESIS: Final = frozenset({
    "all", "and", "as", "between", "by", "case", "decimal", "distinct", "else", "except", "exists", "filter", "from", "having",
    "in", "intersect", "is", "join", "like", "not", "numeric", "on", "or", "over", "select", "then", "union", "using", "when",
    "where",
})  # fmt: skip
"""Words, no functions, that may stand before a parenthesis."""

NODES: Final = frozenset({
    "Add", "Alias", "All", "And", "Any", "Between", "Boolean", "CTE", "Case", "Cast", "Column", "DataType", "DPipe",
    "DataTypeParam", "Distinct", "Div", "EQ", "Escape", "Except", "Exists", "Filter", "From", "GT", "GTE", "Group", "Having",
    "ILike", "Identifier", "If", "In", "IntDiv", "Intersect", "Interval", "Is", "JSONPath", "JSONPathKey", "JSONPathPart",
    "JSONPathRoot", "JSONPathSubscript", "Join", "LT", "LTE", "Like", "Literal", "Mod", "Mul", "NEQ", "Neg", "Not", "Null",
    "NullSafeEQ", "NullSafeNEQ", "Or", "Order", "Ordered", "Paren", "Placeholder", "Select", "Star", "Sub", "Subquery", "Table",
    "TableAlias", "TryCast", "Tuple", "Union", "Var", "Where", "Window", "WindowSpec", "With",
})  # fmt: skip
"""Classes of sqlglot's syntax tree, beside those of functions."""

SYNTAX: Final = {
    "Cluster": "CLUSTER BY",
    "Distribute": "DISTRIBUTE BY",
    "Dot": "a field of a struct",
    "Hint": "a hint",
    "Into": "INTO",
    "Lambda": "a lambda",
    "Lateral": "LATERAL",
    "Limit": "LIMIT: it makes the result depend on chance",
    "Lock": "FOR UPDATE",
    "Offset": "OFFSET: it makes the result depend on chance",
    "Pivot": "PIVOT",
    "Qualify": "QUALIFY",
    "Sort": "SORT BY",
    "TableSample": "TABLESAMPLE",
    "Values": "VALUES",
    "Version": "a version of a table: a run reads all tables as of its begin",
}
"""Class of the syntax tree -> its name in an error."""
