"""Rows of a block, for which expressions are evaluated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streaming.spark import arrow_numbers, arrow_texts, arrow_times
from streaming.spark.arrow_numbers import Function
from streaming.spark.arrow_tree import ArrowExpression, Value, array_of

_FUNCTIONS: dict[str, Function] = {**arrow_numbers.FUNCTIONS, **arrow_texts.FUNCTIONS, **arrow_times.FUNCTIONS}
"""All functions of Arrow columns, by the names that expressions have for them."""


class Rows:
    """So many rows of columns by name, and which of them are doubtful by what has been computed of them.

    For a doubtful row Spark may fail, or what it gives has not been proven; its values have no meaning.
    """

    def __init__(self, columns: Mapping[str, pa.Array], number: int) -> None:
        self._columns = columns
        self._number = number
        self.doubtful = np.zeros(number, dtype=bool)
        # With the expressions, so that nothing else is found at their addresses.
        self._computed: dict[int, tuple[ArrowExpression, Value]] = {}

    def array_of(self, expression: ArrowExpression) -> pa.Array:
        """The value of the expression for each row; raises for none."""
        value = self._value_of(expression)
        if value.doubt is not None:
            self.doubtful |= value.doubt
        return array_of(value, self._number)

    def _value_of(self, expression: ArrowExpression) -> Value:
        found = self._computed.get(id(expression))
        if found is not None:
            return found[1]
        if expression.operation == "column":
            value = Value(self._columns[expression.options[0]])
        else:
            arguments = [self._value_of(each) for each in expression.arguments]
            value = _FUNCTIONS[expression.operation](expression, arguments, self._number)
        self._computed[id(expression)] = (expression, value)
        return value
