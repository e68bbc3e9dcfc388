"""Pure core: the sandboxed environment, and the rendering of one template with JSON data."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from jinja2 import Template, nodes
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as ALL_TESTS
from jinja2.utils import pass_context

from starling_campaigns.bounds import MAX_OUTPUT_BYTES
from starling_campaigns.templates.filters import FILTERS, INTERNAL, METER, ROUNDS, text_of
from starling_campaigns.templates.syntax import LINE_BREAKS, LOOP_FIELDS, TESTS, TemplateError, template_cost, template_errors
from starling_campaigns.templates.values import Meter, Missing, RenderingFailed, View

_CACHED_TEMPLATES: Final = 256


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    """Return the text of an output. A missing value is recorded, and its text is empty."""
    meter: Meter = context.parent[METER]
    if isinstance(value, Missing):
        meter.missing.setdefault(value.path)
        return ""
    text = text_of(value)
    meter.read(len(text))
    return text


def _plus(left: Any, right: Any) -> Any:
    return left + right


def _minus(left: Any, right: Any) -> Any:
    return left - right


def _over(left: Any, right: Any) -> Any:
    return left / right


_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"+": _plus, "-": _minus, "/": _over}


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox without globals. A path reads JSON data alone: no attribute of a Python object is reachable."""

    intercepted_binops = frozenset(_OPERATIONS)
    intercepted_unops = frozenset("-")

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field of the data, or of the loop."""
        if isinstance(obj, LoopContext) and attribute in LOOP_FIELDS:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return a field or an element of the data. A field of a scalar is missing."""
        if isinstance(obj, View):
            return obj.get(argument)
        return Missing(f"{obj.path}.{argument}" if isinstance(obj, Missing) else str(argument))

    def call_binop(
        self,
        context: Context,  # noqa: ARG002 - as in Jinja
        operator: str,
        left: Any,
        right: Any,
    ) -> Any:
        """Compute with two numbers. Raises: RenderingFailed for other values."""
        for one in (left, right):
            if isinstance(one, Missing):
                return one
            _require_number(operator, one)
        try:
            return _OPERATIONS[operator](left, right)
        except (ZeroDivisionError, OverflowError) as error:
            raise RenderingFailed("template_error", f"{operator}: {error}") from error

    def call_unop(
        self,
        context: Context,  # noqa: ARG002 - as in Jinja
        operator: str,
        arg: Any,
    ) -> Any:
        """Negate a number. Raises: RenderingFailed for another value."""
        if isinstance(arg, Missing):
            return arg
        _require_number(operator, arg)
        return -arg


def _require_number(operator: str, value: Any) -> None:
    if type(value) is not int and type(value) is not float:
        raise RenderingFailed("template_error", f"{operator} applies to numbers: convert a text with float")


def _environment(*, is_html: bool) -> _Sandbox:
    found = _Sandbox(autoescape=is_html, undefined=Missing, finalize=_finalize, keep_trailing_newline=True, cache_size=0)
    found.globals.clear()
    found.filters = {name: function for name, (function, _least, _most) in FILTERS.items()} | dict(INTERNAL)
    found.tests = {name: ALL_TESTS[name] for name in TESTS}
    return found


_TEXT: Final = _environment(is_html=False)
_HTML: Final = _environment(is_html=True)


def check_template(source: str, *, is_header: bool = False) -> list[TemplateError]:
    """Return all errors of a template. `is_header`: a line break in a literal text is refused too."""
    return template_errors(_TEXT, source, is_header=is_header)


def cost_of(source: str) -> int:
    """Return the worst-case number of operations of a template that parses. At most `MAX_TEMPLATE_COST` are accepted."""
    return template_cost(_TEXT, source)


def render(source: str, data: Mapping[str, Any], meter: Meter, *, is_html: bool = False, is_header: bool = False) -> str:
    """Return the rendered text of an accepted template. Missing values are recorded in `meter`; their text is empty.

    `data`: `traits`, `event`, `user_id` and `unsubscribe_url`. Raises: RenderingFailed.
    """
    values = {name: _value(name, value, meter) for name, value in data.items()}
    parts: list[str] = []
    size_bytes = 0
    try:
        template = _compiled(source, is_html)
        for part in template.root_render_func(template.new_context({**values, METER: meter})):
            size_bytes += len(part.encode("utf-8", "surrogatepass"))
            _require_size(size_bytes)
            parts.append(part)
    except RenderingFailed:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        # An order between values of different types, or a number out of range: no check of the syntax can see these.
        raise RenderingFailed("template_error", f"the data does not fit: {error}") from error
    text = "".join(parts)
    if is_header and LINE_BREAKS & set(text):
        raise RenderingFailed("header_line_break", "the text of a header has a line break")
    return text


def _require_size(size_bytes: int) -> None:
    if size_bytes > MAX_OUTPUT_BYTES:
        raise RenderingFailed("template_too_large", f"the text is longer than {MAX_OUTPUT_BYTES} bytes")


@lru_cache(maxsize=_CACHED_TEMPLATES)
def _compiled(source: str, is_html: bool) -> Template:
    """Return the compiled template. Raises: RenderingFailed for a template that was not accepted."""
    environment = _HTML if is_html else _TEXT
    if errors := template_errors(environment, source):
        raise RenderingFailed("template_error", errors[0].message)
    tree: nodes.Template = environment.parse(source)
    for loop in tree.find_all(nodes.For):
        has_else = nodes.Const(bool(loop.else_), lineno=loop.lineno)
        loop.iter = nodes.Filter(loop.iter, ROUNDS, [has_else], [], None, None, lineno=loop.lineno)
    code = environment.compile(tree)
    return Template.from_code(environment, code, {})


def _value(name: str, value: Any, meter: Meter) -> Any:
    if value is None:
        return Missing(name)
    return View(name, value, meter) if isinstance(value, Mapping | list) else value
