"""Conditions that come as rows: which of them can be asked of the rows of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from streaming.base import PARSER_ERRORS, DeclarationError, check_condition
from streaming.declare import ConditionRule
from streaming.spark import cause_in_words, lenient_session

_DEEPEST = 400
"""How many levels a condition may be nested. Spark goes over it level by level, and no process survives it when its
stack does not suffice."""

_NAMES = """
    assert_true current_catalog current_date current_database current_schema current_timestamp current_timezone
    current_user input_file_block_length input_file_block_start input_file_name java_method localtimestamp
    monotonically_increasing_id now rand randn random randstr raise_error reflect session_user shuffle
    spark_partition_id try_reflect user uuid version
"""
_NOT_OF_THE_ROW = frozenset(_NAMES.split())
"""Functions that fail by intention, or give another answer when they are asked again."""


def condition_reasons(
    rules: Iterable[ConditionRule], frame: DataFrame, nothing: Callable[[ConditionRule], DataFrame]
) -> list[Column]:
    """For each rule what is wrong with the condition of a row of `frame`, null where nothing is.

    `nothing` gives no row, with the columns of the stream that the conditions of a rule are about.
    """
    reasons = []
    for rule in rules:
        column = F.col(f"`{rule.column}`")
        texts = [row[0] for row in frame.select(column).where(column.isNotNull()).distinct().collect()]
        refused = _refused(rule, texts, nothing) if texts else {}
        if refused:
            named = ((F.lit(text), F.lit(f"{rule.name}: {why}")) for text, why in refused.items())
            reasons.append(F.try_element_at(F.create_map(*chain.from_iterable(named)), column))
    return reasons


def _refused(
    rule: ConditionRule, texts: Iterable[str], nothing: Callable[[ConditionRule], DataFrame]
) -> dict[str, str]:
    columns = nothing(rule)
    rows = lenient_session(columns.sparkSession).createDataFrame([], columns.schema)
    reasons = {text: _why_not(rule, text) for text in texts}
    refused = {text: why for text, why in reasons.items() if why is not None}
    return refused | _unreadable([text for text in reasons if text not in refused], rows)


def _why_not(rule: ConditionRule, text: str) -> str | None:
    """What is wrong with a condition, as far as can be told without Spark."""
    try:
        check_condition("the condition", text, rule.of.types)
        tree = sqlglot.parse_one(text, dialect="spark")
    except DeclarationError as error:
        return str(error)
    except PARSER_ERRORS as error:
        # A parser's error in telling what it has read.
        return f"the condition {text!r} cannot be read: {type(error).__name__}: {error}"
    if _depth(tree) > _DEEPEST:
        return f"the condition {text!r} is nested more than {_DEEPEST} levels deep; write it shorter"
    if functions := sorted({_name(node) for node in tree.find_all(exp.Func)} & _NOT_OF_THE_ROW):
        return f"the condition {text!r} calls {', '.join(functions)}, which follows from no row"
    if tree.find(exp.Query) is not None:
        return f"the condition {text!r} has a query, and follows from more than one row"
    return None


def _depth(tree: exp.Expr) -> int:
    """How many levels the tree has."""
    depths: dict[int, int] = {}
    # Breadth first, so that a parent comes before what is in it.
    for node in tree.walk():
        depths[id(node)] = depths.get(id(node.parent), 0) + 1
    return max(depths.values())


def _unreadable(texts: list[str], rows: DataFrame) -> dict[str, str]:
    """The conditions that Spark refuses; asked all together, as there may be thousands, and by halves where it does."""
    if not texts:
        return {}
    asked = ", ".join(f"if(({text}\n), 1, 0)" for text in texts)
    try:
        # A filter is also refused for what takes many rows together.
        _ = rows.where(f"array_contains(array({asked}), 1)").schema
    # The JVM runs out of stack where it is nested too deeply.
    except (PySparkException, Py4JJavaError) as error:
        if len(texts) == 1:
            return {texts[0]: f"the condition {texts[0]!r} cannot be read: {cause_in_words(error)}"}
        half = len(texts) // 2
        return _unreadable(texts[:half], rows) | _unreadable(texts[half:], rows)
    return {}


def _name(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
