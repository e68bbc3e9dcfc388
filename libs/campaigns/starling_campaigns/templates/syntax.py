"""Pure core: the check of a template on its syntax tree: allowed nodes, names and filters, and the worst-case cost."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from jinja2 import Environment, TemplateSyntaxError, nodes

from starling_campaigns.bounds import (
    MAX_ALL_ROUNDS,
    MAX_LOOPS_DEEP,
    MAX_ROUNDS,
    MAX_SOURCE_BYTES,
    MAX_TEMPLATE_COST,
    MAX_TEMPLATE_DEPTH,
)
from starling_campaigns.templates.filters import FILTERS

ROOTS: Final = ("traits", "event", "user_id", "unsubscribe_url")
"""The names that every template can read."""
LOOP: Final = "loop"
LOOP_FIELDS: Final = frozenset({"index", "index0", "first", "last"})
TESTS: Final = ("defined", "undefined")
ALLOWED: Final[Mapping[type[nodes.Node], int]] = {
    nodes.Template: 0, nodes.Output: 0, nodes.TemplateData: 1, nodes.If: 1, nodes.For: 4, nodes.Name: 1, nodes.Const: 1,
    nodes.Getattr: 2, nodes.Getitem: 2, nodes.Filter: 4, nodes.Test: 1, nodes.Compare: 1, nodes.Operand: 0, nodes.And: 1,
    nodes.Or: 1, nodes.Not: 1, nodes.CondExpr: 1, nodes.Add: 3, nodes.Sub: 3, nodes.Div: 3, nodes.Neg: 1, nodes.List: 1,
    nodes.Tuple: 1,
}  # fmt: skip
"""Node -> its cost in operations, without its children."""
LINE_BREAKS: Final = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\x00")
"""Every character at which some reader of headers begins a new line, and the null character."""
_OUTPUT_COST: Final = 4
"""Of each expression in an output: its text is made, escaped and counted."""
_FILTER_COSTS: Final = {"join": 2 * MAX_ROUNDS, "tojson": 80, "int": 10, "float": 10}
"""Filter -> its cost beyond that of the others."""
_MEMBER_COST: Final = 2 * MAX_ROUNDS
"""Of `in`, which may compare with each element of a list."""
_CHARACTERS_OF_COST: Final = 64
"""A constant text costs one operation more for each of these characters: a comparison may read all of them."""
_NAMES: Final = {
    "Macro": "macros", "Call": "calls", "CallBlock": "calls", "Include": "include", "Import": "imports", "FromImport": "imports",
    "Extends": "extends", "Block": "blocks", "Assign": "set", "AssignBlock": "set", "With": "with", "FilterBlock": "filter blocks",
    "Mul": "*", "Pow": "**", "Mod": "%", "FloorDiv": "//", "Concat": "~", "Slice": "slices", "Dict": "object literals",
    "Pos": "a sign +", "Scope": "autoescape", "ScopedEvalContextModifier": "autoescape",
}  # fmt: skip
_ALLOWED_IN_WORDS: Final = "values, if, for over data, filters (" + ", ".join(FILTERS) + "), comparisons, and, or, not, +, -, /"


class TemplateError(NamedTuple):
    """One error of a template. `code`: `bad_template`, `too_costly`, `too_deep` or `too_large`."""

    code: str
    message: str
    expected: str


def template_errors(environment: Environment, source: str, *, is_header: bool = False) -> list[TemplateError]:
    """Return all errors of a template's source, in the order of the source. A template without errors compiles and is bounded.

    `is_header`: a line break in a literal text is an error too.
    """
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        return [TemplateError("too_large", f"the template has {size} bytes", f"at most {MAX_SOURCE_BYTES} bytes of UTF-8")]
    try:
        tree = environment.parse(source)
    except TemplateSyntaxError as error:
        return [TemplateError("bad_template", f"line {error.lineno}: {error.message}", "the syntax of Jinja")]
    except RecursionError:
        return [_too_deep(1)]
    return _Check(is_header=is_header).errors_of(tree)


def template_cost(environment: Environment, source: str) -> int:
    """Return the worst-case number of operations of a template that parses."""
    check = _Check(is_header=False)
    check.errors_of(environment.parse(source))
    return check.cost


def _too_deep(line: int) -> TemplateError:
    expected = f"at most {MAX_TEMPLATE_DEPTH} levels; a chain of and, or or filters has a level for each"
    return TemplateError("too_deep", f"line {line}: the template is nested more than {MAX_TEMPLATE_DEPTH} deep", expected)


class _Scope(NamedTuple):
    names: frozenset[str]
    loops: int
    rounds: int
    depth: int

    def deeper(self) -> "_Scope":
        return self._replace(depth=self.depth + 1)


class _Check:
    """The progress of the check of one template."""

    def __init__(self, *, is_header: bool) -> None:
        self._is_header = is_header
        self._errors: list[TemplateError] = []
        self.cost = 0
        self._checks: Mapping[type[nodes.Node], Callable[..., None]] = {
            nodes.Output: self._output,
            nodes.TemplateData: self._literal,
            nodes.Const: self._const,
            nodes.Name: self._name,
            nodes.Getattr: self._getattr,
            nodes.Getitem: self._getitem,
            nodes.Filter: self._filter,
            nodes.Operand: self._operand,
            nodes.Test: self._test,
            nodes.CondExpr: self._cond,
            nodes.For: self._for,
        }

    def errors_of(self, tree: nodes.Template) -> list[TemplateError]:
        self._visit(tree, _Scope(frozenset(ROOTS), 0, 1, 0))
        if not self._errors and self.cost > MAX_TEMPLATE_COST:
            expected = (
                f"at most {MAX_TEMPLATE_COST} operations; a loop counts {MAX_ROUNDS} times, a loop in a loop {MAX_ALL_ROUNDS}"
            )
            self._errors.append(TemplateError("too_costly", f"the template may need {self.cost} operations", expected))
        return self._errors

    def _refuse(self, node: nodes.Node, message: str, expected: str) -> None:
        self._errors.append(TemplateError("bad_template", f"line {node.lineno or 1}: {message}", expected))

    def _visit(self, node: nodes.Node, scope: _Scope) -> None:
        if scope.depth > MAX_TEMPLATE_DEPTH:
            if not any(error.code == "too_deep" for error in self._errors):
                self._errors.append(_too_deep(node.lineno))
            return
        kind = type(node)
        if kind not in ALLOWED:
            name = _NAMES.get(kind.__name__, kind.__name__)
            self._refuse(node, f"{name} is not allowed in a template", _ALLOWED_IN_WORDS)
            return
        self.cost += ALLOWED[kind] * scope.rounds
        check = self._checks.get(kind)
        if check is None:
            for child in node.iter_child_nodes():
                self._visit(child, scope.deeper())
        else:
            check(node, scope)

    def _output(self, node: nodes.Output, scope: _Scope) -> None:
        for one in node.nodes:
            if not isinstance(one, nodes.TemplateData):
                self.cost += _OUTPUT_COST * scope.rounds
            if isinstance(one, nodes.List | nodes.Tuple):
                self._refuse(one, "a list has no text", "a value, or a filter such as join")
            else:
                self._visit(one, scope.deeper())

    def _literal(self, node: nodes.TemplateData, _scope: _Scope) -> None:
        if self._is_header and LINE_BREAKS & set(node.data):
            self._refuse(node, "the text of a header has a line break", "one line")

    def _const(self, node: nodes.Const, scope: _Scope) -> None:
        if isinstance(node.value, str):
            self.cost += len(node.value) // _CHARACTERS_OF_COST * scope.rounds
        elif node.value is None or isinstance(node.value, complex):
            self._refuse(node, "none is not a value", "default, or the tests defined and undefined")
        elif isinstance(node.value, int) and abs(node.value) > 2**53:
            self._refuse(node, "the number is out of range", "a number within ±2^53")

    def _name(self, node: nodes.Name, scope: _Scope) -> None:
        if node.name not in scope.names:
            expected = "one of " + ", ".join(sorted(scope.names)) + "; a trait is traits.name"
            self._refuse(node, f"unknown name {node.name!r}", expected)
        elif node.name == LOOP:
            self._refuse(node, "loop has no value of its own", "loop." + ", loop.".join(sorted(LOOP_FIELDS)))

    def _getattr(self, node: nodes.Getattr, scope: _Scope) -> None:
        if isinstance(node.node, nodes.Name) and node.node.name == LOOP and LOOP in scope.names:
            if node.attr not in LOOP_FIELDS:
                self._refuse(node, f"loop.{node.attr} is not allowed", "one of loop." + ", loop.".join(sorted(LOOP_FIELDS)))
            return
        self._visit(node.node, scope.deeper())

    def _getitem(self, node: nodes.Getitem, scope: _Scope) -> None:
        if not isinstance(node.arg, nodes.Const) or type(node.arg.value) not in (str, int):
            self._refuse(node, "the name in brackets is not a constant", 'traits["first name"] or traits.items[0]')
            return
        if isinstance(node.node, nodes.Name) and node.node.name == LOOP:
            self._refuse(node, "loop has no fields in brackets", "loop.index")
            return
        self._visit(node.arg, scope.deeper())
        self._visit(node.node, scope.deeper())

    def _filter(self, node: nodes.Filter, scope: _Scope) -> None:
        known = FILTERS.get(node.name)
        if known is None:
            self._refuse(node, f"unknown filter {node.name!r}", "one of " + ", ".join(FILTERS))
        elif node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
            self._refuse(node, f"filter {node.name!r} has named arguments", f"{node.name}(value)")
        elif not known[1] <= len(node.args) <= known[2]:
            expected = f"{known[1]} to {known[2]} arguments" if known[1] != known[2] else f"{known[1]} arguments"
            self._refuse(node, f"filter {node.name!r} has {len(node.args)} arguments", expected)
        self.cost += _FILTER_COSTS.get(node.name, 0) * scope.rounds
        if node.node is None:
            self._refuse(node, "filter blocks are not allowed in a template", _ALLOWED_IN_WORDS)
            return
        for child in (node.node, *node.args):
            self._visit(child, scope.deeper())

    def _operand(self, node: nodes.Operand, scope: _Scope) -> None:
        if node.op in {"in", "notin"}:
            self.cost += _MEMBER_COST * scope.rounds
        self._visit(node.expr, scope.deeper())

    def _test(self, node: nodes.Test, scope: _Scope) -> None:
        if node.name not in TESTS or node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            self._refuse(node, f"the test {node.name!r} is not allowed", "is defined, is undefined, or a comparison such as ==")
        self._visit(node.node, scope.deeper())

    def _cond(self, node: nodes.CondExpr, scope: _Scope) -> None:
        if node.expr2 is None:
            self._refuse(node, "the expression has no else", "{{ one if condition else other }}")
        for child in node.iter_child_nodes():
            self._visit(child, scope.deeper())

    def _for(self, node: nodes.For, scope: _Scope) -> None:
        if scope.loops == MAX_LOOPS_DEEP:
            self._refuse(node, f"loops are nested more than {MAX_LOOPS_DEEP} deep", f"at most {MAX_LOOPS_DEEP} loops in each other")
            return
        if node.recursive:
            self._refuse(node, "recursive loops are not allowed", "{% for item in traits.items %}")
        if not _is_data(node.iter):
            self._refuse(node, "the loop is not over data", "a path such as traits.items or event.properties.products")
        self._visit(node.iter, scope.deeper())
        names = scope.names
        if not isinstance(node.target, nodes.Name) or not _is_name(node.target.name) or node.target.name in {*ROOTS, LOOP}:
            self._refuse(
                node, "the name of the loop is not allowed", "one name of ASCII letters, unlike " + ", ".join((*ROOTS, LOOP))
            )
        else:
            names = names | {node.target.name}
        inner = scope._replace(
            names=names, loops=scope.loops + 1, rounds=min(scope.rounds * MAX_ROUNDS, MAX_ALL_ROUNDS), depth=scope.depth + 1
        )
        if node.test is not None:
            self._visit(node.test, inner)
        for child in node.body:
            self._visit(child, inner._replace(names=names | {LOOP}))
        for child in node.else_:
            self._visit(child, scope.deeper())


def _is_data(node: nodes.Node) -> bool:
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        node = node.node
    return isinstance(node, nodes.Name)


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not name.startswith("_")
