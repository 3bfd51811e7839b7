"""Expressions of Spark as trees over Arrow columns, as far as both are proven to compute the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from streaming.spark.arrow_rules import Node, RefusedError, column, kind_of, translated
from streaming.spark.arrow_tree import ArrowExpression, Unproven
from streaming.spark.guard import java_classes

_RULES = (
    "ReplaceExpressions",
    "RewriteWithExpression",
    "RewriteWithExpression",
    "SimplifyExtractValueOps",
    "ColumnPruning",
)
"""Rules of Spark's optimizer that leave fewer kinds of expressions; what others drop only saves work.

One of them sees no expression that is within another one of its kind, and so comes twice."""
_FOLDING = "ConstantFolding"
_DEEPEST = 100
"""Evaluating and pickling a tree call themselves for each of its levels."""
_CHANGING = re.compile(r"\.\w*(Current|Now|LocalTimestamp|Uuid|Rand|Shuffle|MonotonicallyIncreasing|PartitionID)\w*$")
_ESCAPED = re.compile(r" ESCAPE |\.\.\. \d+ more fields")


def arrow_expressions(frame: DataFrame) -> dict[str, ArrowExpression | Unproven]:
    """The columns of a frame over the columns of its input, from which it does nothing but select.

    Those that are `Unproven` are left to Spark, which are all where a column needs more than its own row.
    """
    conf = frame.sparkSession.conf
    if conf.get("spark.sql.session.timeZone") != "UTC":
        return dict.fromkeys(frame.columns, Unproven("a session of another time zone than UTC runs in Spark"))
    if conf.get("spark.sql.ansi.enabled") != "true":
        return dict.fromkeys(frame.columns, Unproven("a session without ANSI mode runs in Spark"))
    plan: Any = frame._jdf.queryExecution().analyzed()
    catalyst = java_classes().org.apache.spark.sql.catalyst
    optimizer = catalyst.optimizer
    for rule in _RULES:
        plan = getattr(optimizer, rule).apply(plan)
    # Folding takes the present for a constant.
    knows_present = plan.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE())
    changing = _Plan(plan).changing() if knows_present else set[int]()
    try:
        plan = getattr(optimizer, _FOLDING).apply(plan)
    except PySparkException:
        # A constant cannot be computed; Spark fails where a row asks for it.
        names = [F.col(_quoted(name)) for name in frame.columns]
        if len(names) > 1:
            half = len(names) // 2
            first, second = frame.select(*names[:half]), frame.select(*names[half:])
            return {**arrow_expressions(first), **arrow_expressions(second)}
    return _Plan(plan).expressions(frame.columns, changing)


def is_equal_in_arrow(type_: DataType) -> bool:
    """True where Arrow finds the same values equal as Spark, by whose rules zeros have no sign."""
    # A text of a collation is another type.
    return type_ == StringType() or isinstance(
        type_, (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType, BooleanType, BinaryType)
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _Plan:
    """The plan of a frame that selects from its input, once or several times."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self._texts: dict[int, str] = {}
        self._nodes: list[dict[str, Any]] = json.loads(plan.toJSON())

    def _selections(self) -> list[tuple[int, list[list[Node]]]]:
        """Each selection with its depth in the plan, in the order of computing."""
        every = [(depth, node["projectList"]) for depth, node in enumerate(self._nodes) if kind_of(node) == "Project"]
        return every[::-1]

    def changing(self) -> set[int]:
        """The ids of columns that need not be the same when they are computed again."""
        changing = set[int]()
        for _, selected in self._selections():
            for trees in selected:
                read = {_id(node) for node in trees if kind_of(node) == "AttributeReference"}
                if read & changing or any(_CHANGING.search(node["class"]) for node in trees):
                    changing.add(_id(trees[0]))
        return changing

    def expressions(self, columns: Sequence[str], changing: set[int]) -> dict[str, ArrowExpression | Unproven]:
        """Each of the columns of the last selection, by name."""
        *above, leaf = self._nodes
        others = [kind_of(node) for node in above if kind_of(node) not in ("Project", "SubqueryAlias")]
        if others or "output" not in leaf:
            return dict.fromkeys(columns, Unproven(f"the step {(others or [kind_of(leaf)])[0]} runs in Spark"))
        translation = _Translation()
        named = translation.columns([attribute for (attribute,) in leaf["output"]])
        for depth, selected in self._selections():
            named = {}
            for place, trees in enumerate(selected):
                escapes = partial(self._escapes, depth, place)
                named[trees[0]["name"]] = translation.define(trees, _id(trees[0]) in changing, escapes)
        return named

    def _selected(self, depth: int) -> Any:
        plan = self._plan
        for _ in range(depth):
            plan = plan.children().head()
        return plan.projectList()

    def _escapes(self, depth: int, place: int) -> bool:
        """True if an expression may have a pattern with an escape character of its own.

        The JSON does not tell the character, but Spark prints it, though not of every expression the whole.
        """
        if depth not in self._texts:
            self._texts[depth] = self._selected(depth).mkString()
        return bool(
            _ESCAPED.search(self._texts[depth]) and _ESCAPED.search(self._selected(depth).apply(place).toString())
        )


def _id(node: Node) -> int:
    return int(node["exprId"]["id"])


class _Translation:
    """Translates expressions one after the other; what they have in common is shared."""

    def __init__(self) -> None:
        self._known: dict[int, ArrowExpression | Unproven] = {}
        self._made: dict[tuple[Any, ...], ArrowExpression] = {}
        self._depths: dict[int, int] = {}

    def columns(self, attributes: Sequence[Node]) -> dict[str, ArrowExpression | Unproven]:
        """The columns of the input, by name."""
        for attribute in attributes:
            try:
                self._known[_id(attribute)] = self._shared(column(attribute))
            except RefusedError as error:
                self._known[_id(attribute)] = Unproven(str(error))
        return {attribute["name"]: self._known[_id(attribute)] for attribute in attributes}

    def define(self, trees: Sequence[Node], changes: bool, escapes: Callable[[], bool]) -> ArrowExpression | Unproven:
        """A selected column, from its nodes: each stands before its children."""
        try:
            if changes or any(_CHANGING.search(node["class"]) for node in trees):
                raise RefusedError("what changes from run to run runs in Spark")
            result: ArrowExpression | Unproven = self._translated(trees, escapes)
        except RefusedError as error:
            result = Unproven(str(error))
        # One that is taken as it is keeps its id.
        self._known[_id(trees[0])] = result
        return result

    def _translated(self, trees: Sequence[Node], escapes: Callable[[], bool]) -> ArrowExpression:
        if any(kind_of(node) == "Like" for node in trees) and escapes():
            raise RefusedError("a pattern with an escape character of its own runs in Spark")
        waiting: list[ArrowExpression] = []
        for node in reversed(trees):
            end = len(waiting) - node["num-children"]
            arguments = waiting[end:][::-1]
            del waiting[end:]
            waiting.append(self._node(node, arguments))
        (whole,) = waiting
        return whole

    def _node(self, node: Node, arguments: Sequence[ArrowExpression]) -> ArrowExpression:
        match kind_of(node):
            case "Alias":
                return arguments[0]
            case "AttributeReference":
                found = self._known[_id(node)]
                if isinstance(found, Unproven):
                    raise RefusedError(found.reason)
                return found
        return self._shared(translated(node, arguments))

    def _shared(self, expression: ArrowExpression) -> ArrowExpression:
        """An equal expression, the one that was made first; its depth is known."""
        if id(expression) in self._depths:
            return expression
        arguments = tuple(self._shared(each) for each in expression.arguments)
        options = tuple(map(_key, expression.options))
        key = (expression.operation, expression.type, *map(id, arguments), *options)
        found = self._made.get(key)
        if found is None:
            depth = 1 + max((self._depths[id(each)] for each in arguments), default=0)
            if depth > _DEEPEST:
                raise RefusedError(f"an expression of more than {_DEEPEST} levels runs in Spark")
            found = ArrowExpression(expression.operation, expression.type, arguments, expression.options)
            self._made[key] = found
            self._depths[id(found)] = depth
        return found


def _key(option: Any) -> str:
    """A text that tells options of a function apart, also zeros of either sign."""
    if isinstance(option, pa.Array):
        return repr(option.to_pylist())
    if isinstance(option, pa.Scalar):
        return repr(option.as_py())
    return repr(option)
