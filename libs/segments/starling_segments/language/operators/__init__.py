"""Pure core: the table of operators. A new operator is one entry in the table of its family."""

from collections.abc import Mapping

from starling_segments.language.operators import arrays, geo, moments, scalars
from starling_segments.language.operators.table import Operator

OPERATORS: Mapping[str, Operator] = {**scalars.OPERATORS, **moments.OPERATORS, **arrays.OPERATORS, **geo.OPERATORS}
