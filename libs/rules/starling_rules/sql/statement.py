"""Pure core: the check of a statement in SQL. It has one SELECT over the tables of its workspace, and no other effect.

The text itself is executed, so what Spark could read in another way than this check is refused: comments, backslashes, and
characters without a use in a SELECT. Spark checks its own plan of the statement again (`starling_spark.jobs.sql_traits`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from starling_rules.sql.tables import RESULT, TABLES
from starling_rules.sql.words import BEFORE_PARENTHESIS, FUNCTIONS, NODES, REPLACEMENTS, SYNTAX

MAX_CHARACTERS: Final = 10_000
MAX_TOKENS: Final = 1_500
MAX_NESTING: Final = 12
"""Parentheses within one another. The time of the parser grows fast with them."""
MAX_JOINS: Final = 8
MAX_COLUMNS: Final = 200
"""Of the result of a view."""
AS_OF: Final = "as_of"
Tables: TypeAlias = Mapping[str, Sequence[str]]
"""Table -> its columns, in lower case."""
_MOST_ERRORS: Final = 20

_COLUMN: Final = re.compile(r"[a-z_][a-z0-9_]{0,127}\Z")
_CLOSED_STRINGS: Final = frozenset({
    TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.BIT_STRING, TokenType.BYTE_STRING, TokenType.NATIONAL_STRING,
    TokenType.HEREDOC_STRING, TokenType.UNICODE_STRING,
})  # fmt: skip
_SIGNS: Final = frozenset("()*,.+-/%<>=:") | {"<=", ">=", "==", "<>", "!=", "<=>", "||"}
_FIRST: Final = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN})
_WITHOUT_PARENTHESES: Final = (*{*Spark.Parser.NO_PAREN_FUNCTIONS.values()}, exp.RegexpLike, exp.RegexpILike)
"""Functions that need no parenthesis after their name, so that no word before one names them: `CURRENT_DATE`, and RLIKE."""
_JOIN_KINDS: Final = frozenset({"", "INNER", "OUTER", "SEMI", "ANTI"})


class SqlError(NamedTuple):
    """One error of a statement. `line` and `column` count from 1; `cure`: what to write instead."""

    code: str
    line: int
    column: int
    reason: str
    cure: str


def cleaned(text: str) -> str:
    """Return the statement without white space around it and a semicolon at its end."""
    return text.strip().removesuffix(";").rstrip()


def sql_errors(text: str, tables: Tables = TABLES, *, is_view: bool = False) -> list[SqlError]:
    """Return the errors of a `cleaned` statement in the order of the text, at most 20; empty if it may run.

    `tables`: those of its workspace, each with its columns. `is_view`: the statement of a view, which names its columns itself.
    """
    found = _text_errors(text)
    if found:
        return found
    try:
        tokens = Spark().tokenize(text)
    except TokenError as error:
        at = Place.at(text, min(error.start or 0, len(text)))
        return [SqlError("bad_syntax", *at, "the text cannot be read", "close every quote and parenthesis")]
    errors = [*_token_errors(text, tokens)] or _parsed_errors(text, tables, is_view=is_view)
    return sorted(dict.fromkeys(errors), key=_order)[:_MOST_ERRORS]


def tables_read(text: str) -> frozenset[str]:
    """Return the names of the tables that a statement reads, in lower case; none for a text that is no SELECT."""
    tree = parsed(text)
    if tree is None:
        return frozenset()
    parts = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    return frozenset(one.name.lower() for one in tree.find_all(exp.Table)) - parts


def result_columns(text: str) -> tuple[str, ...]:
    """Return the names of the columns of the result, in lower case; none for a text that is no SELECT, or names them by *."""
    tree = parsed(text)
    names = () if tree is None else tuple(name.lower() for name in tree.named_selects if name)
    return () if "*" in names else names


def parsed(text: str) -> exp.Query | None:
    """Return the syntax tree of a statement; None for a text that is no SELECT."""
    try:
        trees = Spark().parse(text)
    except (TokenError, ParseError, RecursionError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    return tree if isinstance(tree, exp.Query) else None


def _parsed_errors(text: str, tables: Tables, *, is_view: bool) -> list[SqlError]:
    try:
        trees = Spark().parse(text)
    except ParseError as error:
        return [_syntax_error(error)]
    except RecursionError:
        return [SqlError("too_complex", 1, 1, "it is nested too deeply", "use WITH for parts of it")]
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        return [SqlError("not_select", 1, 1, "it is no SELECT", "one SELECT, or WITH and a SELECT")]
    return [*_tree_errors(text, tree, tables, is_view=is_view)]


class Place(NamedTuple):
    """A place in a statement. Both numbers count from 1."""

    line: int
    column: int

    @classmethod
    def at(cls, text: str, offset: int) -> "Place":
        """Return the place of a character."""
        return cls(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))

    @classmethod
    def of(cls, text: str, node: exp.Expr) -> "Place":
        """Return the place of a node: that of its first part with one."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return cls.at(text, min(starts, default=0))


def _order(error: SqlError) -> tuple[int, int]:
    return error.line, error.column


def _text_errors(text: str) -> list[SqlError]:
    if not text:
        return [SqlError("missing_sql", 1, 1, "it is empty", "one SELECT")]
    if len(text) > MAX_CHARACTERS:
        return [SqlError("too_complex", 1, 1, f"it has {len(text)} characters", f"at most {MAX_CHARACTERS} characters")]
    for offset, character in enumerate(text):
        if character == "\\" or (not character.isprintable() and character not in "\n\r\t"):
            reason = "a backslash" if character == "\\" else f"the character U+{ord(character):04X}"
            return [SqlError("bad_character", *Place.at(text, offset), f"{reason} is not allowed", "text without it")]
    at = text.find("${")
    if at >= 0:
        return [SqlError("bad_character", *Place.at(text, at), "'${' is not allowed: it would name a variable", "text without it")]
    return []


def _token_errors(text: str, tokens: Sequence[Token]) -> Iterator[SqlError]:
    if len(tokens) > MAX_TOKENS:
        yield SqlError("too_complex", 1, 1, f"it has {len(tokens)} words and signs", f"at most {MAX_TOKENS}")
        return
    if tokens and tokens[0].token_type not in _FIRST:
        yield SqlError("not_select", *Place.at(text, tokens[0].start), "it is no SELECT", "one SELECT, or WITH and a SELECT")
        return
    depth = 0
    for index, token in enumerate(tokens):
        at = Place.at(text, token.start)
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.comments or token.token_type is TokenType.HINT:
            yield SqlError("comment", *at, "there is a comment or a hint here", "the description or the name for comments")
        elif token.token_type in _CLOSED_STRINGS:
            yield SqlError("bad_literal", *at, "it is no plain text", "a text in single quotes")
        elif token.token_type is TokenType.SEMICOLON:
            yield SqlError("not_select", *at, "there is a second statement", "one SELECT")
        elif not _is_known(token):
            yield SqlError("bad_character", *at, f"{token.text!r} is not allowed", "signs of a SELECT")
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth > MAX_NESTING:
            yield SqlError("too_complex", *at, "it is nested too deeply", f"at most {MAX_NESTING} parentheses within one another")
            return
        if following is not None and following.token_type is TokenType.L_PAREN:
            yield from _call_errors(at, token, tokens[index - 1] if index else None)


def _is_known(token: Token) -> bool:
    """Return whether it is a word, a literal, or made of permitted signs."""
    if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER}:
        return True
    return token.text[:1].isalnum() or token.text[:1] == "_" or token.text in _SIGNS


def _call_errors(at: Place, token: Token, before: Token | None) -> Iterator[SqlError]:
    """Yield the error of a word before a parenthesis that is no permitted function."""
    name = token.text.lower()
    word = name.split()[-1] if name.split() else name  # of `GROUP BY`, which is one token
    if token.token_type in {TokenType.STRING, TokenType.NUMBER} or not (name[:1].isalpha() or name[:1] == "_"):
        return
    is_qualified = before is not None and before.token_type is TokenType.DOT
    is_plain = token.token_type is not TokenType.IDENTIFIER and not is_qualified
    if is_plain and (name in FUNCTIONS or word in BEFORE_PARENTHESIS):
        return
    yield _function_error(at, name)


def _function_error(at: Place, name: str) -> SqlError:
    instead = REPLACEMENTS.get(name)
    cure = instead if instead is not None else "one of " + ", ".join(sorted(FUNCTIONS))
    return SqlError("bad_function", *at, f"the function {name} is not allowed", cure)


def _syntax_error(error: ParseError) -> SqlError:
    first = error.errors[0] if error.errors else {}
    line, end = first.get("line") or 1, first.get("col") or 1
    column = max(1, end - len(first.get("highlight") or "") + 1)
    reason = first.get("description") or "it cannot be read"
    return SqlError("bad_syntax", line, column, reason.rstrip("."), "a SELECT in the SQL of Spark")


def _tree_errors(text: str, tree: exp.Query, of: Tables, *, is_view: bool) -> Iterator[SqlError]:
    unknown = [node for node in tree.walk() if not _is_allowed(node)]
    for node in unknown:
        yield _node_error(text, node)
    if unknown:
        return
    yield from _view_errors(text, tree) if is_view else _result_errors(text, tree)
    names = _Names(tree, of, is_view=is_view)
    joins = list(tree.find_all(exp.Join))
    if len(joins) > MAX_JOINS:
        place = Place.of(text, joins[MAX_JOINS])
        yield SqlError("too_complex", *place, f"it has {len(joins)} joins", f"at most {MAX_JOINS} joins")
    for node in tree.walk():
        yield from _one(text, node, names)


def _is_allowed(node: exp.Expr) -> bool:
    if isinstance(node, _WITHOUT_PARENTHESES):
        return False
    return type(node).__name__ in NODES or isinstance(node, exp.Func)


def _node_error(text: str, node: exp.Expr) -> SqlError:
    name = type(node).__name__
    at = Place.of(text, node)
    if isinstance(node, exp.Func):
        return _function_error(at, node.sql_name().lower())
    return SqlError("bad_syntax", *at, f"{SYNTAX.get(name, name)} is not allowed", "a SELECT with joins, conditions and groups")


class _Names:
    """The names in a statement: its subqueries, the tables by their alias, and the columns that it defines."""

    def __init__(self, tree: exp.Query, of: Tables, *, is_view: bool) -> None:
        self.tables = of
        self.is_view = is_view
        self.ctes = {one.alias.lower() for one in tree.find_all(exp.CTE)}
        self.sources: dict[str, set[str]] = {}
        """Alias -> tables; empty for one that also stands for a subquery."""
        tables = [one for one in tree.find_all(exp.Table) if one.name.lower() not in self.ctes]
        for table in tables:
            self.sources.setdefault(table.alias_or_name.lower(), set()).add(table.name.lower())
        derived = {one.alias.lower() for one in tree.find_all(exp.Subquery) if one.alias}
        derived |= {one.alias_or_name.lower() for one in tree.find_all(exp.Table) if one.name.lower() in self.ctes}
        self.derived = derived | self.ctes
        self._defined = Counter(one.alias.lower() for one in tree.find_all(exp.Alias))
        self.read = {table.name.lower() for table in tables}

    def is_defined(self, column: exp.Column) -> bool:
        """Return whether the statement defines a column of this name elsewhere: `sum(x) AS x` reads the `x` of a table."""
        name, own = column.name.lower(), column.find_ancestor(exp.Alias)
        return self._defined[name] > (own is not None and own.alias.lower() == name)


def _one(text: str, node: exp.Expr, names: _Names) -> Iterator[SqlError]:
    """Yield the errors of one node."""
    match node:
        case exp.Table():
            yield from _table_errors(text, node, names)
        case exp.Column():
            yield from _column_errors(text, node, names)
        case exp.Join():
            yield from _join_errors(text, node)
        case exp.Star() if not isinstance(node.parent, exp.Count):
            at = Place.of(text, node if "start" in node.meta else node.parent or node)
            yield SqlError("star", *at, "* stands for all columns", "the names of the columns")
        case exp.Placeholder() if node.name != AS_OF:
            at = Place.of(text, node.parent or node)
            yield SqlError("bad_parameter", *at, f":{node.name} is no parameter", ":as_of, the time of the run")
        case exp.Alias() if not names.is_view and node.alias.lower() == RESULT[0] and not _is_user(node.this):
            cure = "the column user_id of a table, or coalesce of several"
            yield SqlError("bad_result", *Place.of(text, node), "user_id is computed, so it may be the id of no user", cure)
        case exp.With() if node.args.get("recursive"):
            yield SqlError("bad_syntax", *Place.of(text, node), "RECURSIVE is not allowed", "WITH without it")
        case exp.CTE() if node.alias.lower() in names.tables:
            place = Place.of(text, node.args["alias"])
            yield SqlError("bad_name", *place, f"{node.alias} is the name of a table", "another name for this part")


def _table_errors(text: str, table: exp.Table, names: _Names) -> Iterator[SqlError]:
    at, name = Place.of(text, table), table.name.lower()
    if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
        yield SqlError("unknown_table", *at, "it names a catalog, a file or a function", "one of " + ", ".join(names.tables))
    elif name not in names.tables and name not in names.ctes:
        yield SqlError("unknown_table", *at, f"there is no table {table.name!r}", "one of " + ", ".join(names.tables))


def _column_errors(text: str, column: exp.Column, names: _Names) -> Iterator[SqlError]:
    at, name, qualifier = Place.of(text, column), column.name.lower(), column.table.lower()
    if column.args.get("db") is not None or (qualifier and qualifier not in names.sources and qualifier not in names.derived):
        yield SqlError("unknown_column", *at, f"there is no table with the name {qualifier!r}", "the alias of a table in FROM")
        return
    if qualifier in names.derived or (not qualifier and names.is_defined(column)):
        return
    read = names.sources[qualifier] if qualifier else names.read
    known = {one for table in read for one in names.tables.get(table, ())}
    # An unknown table is an error of its own.
    if name not in known and all(table in names.tables for table in read):
        expected = "one of " + ", ".join(sorted(known)) if known else "a column of a table in FROM"
        yield SqlError("unknown_column", *at, f"there is no column {column.name!r}", expected)


def _join_errors(text: str, join: exp.Join) -> Iterator[SqlError]:
    at = Place.of(text, join.this)
    if join.kind not in _JOIN_KINDS or join.method:
        yield SqlError("cross_join", *at, f"the join is {join.method or join.kind}", "JOIN … ON with equal columns")
    elif not join.args.get("using") and not any(map(_is_equality, _conditions(join.args.get("on")))):
        reason = "the join has no equal columns of both sides, so every row would meet every row"
        yield SqlError("cross_join", *at, reason, "JOIN … ON one.column = other.column, or USING (column)")


def _conditions(on: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that all have to hold."""
    if on is None:
        return []
    inner = on.unnest()
    return list(inner.flatten()) if isinstance(inner, exp.And) else [inner]


def _is_equality(condition: exp.Expr) -> bool:
    part = condition.unnest()
    if not isinstance(part, exp.EQ | exp.NullSafeEQ):
        return False
    sides = [{column.table.lower() for column in side.find_all(exp.Column)} for side in (part.left, part.right)]
    # Without qualifiers Spark decides: its plan is checked too.
    return all(sides) and (sides[0].isdisjoint(sides[1]) or {""} in sides)


def _is_user(value: exp.Expr) -> bool:
    """Return whether a value is the column `user_id`, or the first of several that is not null."""
    if isinstance(value, exp.Coalesce):
        return all(map(_is_user, (value.this, *value.expressions)))
    return isinstance(value, exp.Column) and value.name.lower() == RESULT[0]


def _result_errors(text: str, tree: exp.Query) -> Iterator[SqlError]:
    names = [name.lower() for name in tree.named_selects]
    if sorted(names) != sorted(RESULT):
        found = ", ".join(name or "one without a name" for name in names)
        cure = "SELECT … AS user_id, … AS value"
        yield SqlError("bad_result", *Place.of(text, tree), f"the columns of the result are {found}", cure)


def _view_errors(text: str, tree: exp.Query) -> Iterator[SqlError]:
    names = [name.lower() for name in tree.named_selects]
    at, cure = Place.of(text, tree), "SELECT … AS name, with another name of letters, digits and _ for each column"
    if len(names) > MAX_COLUMNS:
        yield SqlError("too_complex", *at, f"the result has {len(names)} columns", f"at most {MAX_COLUMNS} columns")
    for place, name in enumerate(names):
        if not _COLUMN.match(name) and name != "*":  # an error of its own
            reason = f"the column {name!r} of the result" if name else f"the column {place + 1} of the result has no name"
            yield SqlError("bad_result", *at, f"{reason} cannot be a column of a table" if name else reason, cure)
        elif name in names[:place]:
            yield SqlError("bad_result", *at, f"two columns of the result are {name}", cure)
