"""All functions of Arrow columns, by the names that expressions have for them."""

from __future__ import annotations

from streaming.spark import arrow_numbers, arrow_texts, arrow_times
from streaming.spark.arrow_numbers import Function

FUNCTIONS: dict[str, Function] = {**arrow_numbers.FUNCTIONS, **arrow_texts.FUNCTIONS, **arrow_times.FUNCTIONS}
