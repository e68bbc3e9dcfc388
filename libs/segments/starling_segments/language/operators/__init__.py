"""Pure core: every operator of the language, by name. A new operator is one entry in one of the families' tables."""

from collections.abc import Mapping

from starling_segments.language.operators import arrays, geo, moments, scalars
from starling_segments.language.operators.table import Operator

OPERATORS: Mapping[str, Operator] = {**scalars.OPERATORS, **moments.OPERATORS, **arrays.OPERATORS, **geo.OPERATORS}
