"""Which nodes of Spark's expressions are which functions of Arrow columns, and for which types that is proven."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.spark.arrow_functions import value_set
from streaming.spark.arrow_times import READ_WITH, TIMES_CUT, format_parts
from streaming.spark.arrow_tree import ArrowExpression, arrow_type, decimal_type
from streaming.spark.java_regex import NotTheSameError, Re2, in_re2, re2_of

Node: TypeAlias = Mapping[str, Any]
Arguments: TypeAlias = Sequence[ArrowExpression]
Rule: TypeAlias = Callable[[Node, Arguments], ArrowExpression]

_WHOLE = ("byte", "short", "integer", "long")
_FLOATING = ("float", "double")
_NUMBERS = (*_WHOLE, *_FLOATING)
_INSTANTS = ("timestamp", "timestamp_ntz")
_ORDERED = ("boolean", *_NUMBERS, "string", "binary", "date", *_INSTANTS, "days")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_MOST_PLACES = 9
"""Decimal places to which doubles are rounded."""
_ANY_ORDER, _ANY_TURN = "in_any_order", "in_any_turn"
_SECOND = 1_000_000
_VOID = "void"
"""The type of a null of which nothing else is known."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")


class RefusedError(Exception):
    """An expression runs in Spark, for the reason that is the message."""


def name_of(type_: Any) -> str:
    """The name by which a type of Spark's JSON is known here; JSON for what is made of others."""
    if isinstance(type_, dict):
        return json.dumps(type_)
    name = str(type_)
    if name.startswith("interval "):
        return "months" if "year" in name or "month" in name else "days"
    return name


def column(attribute: Node) -> ArrowExpression:
    """A column of the input.

    Raises:
        RefusedError: its type is not known here.
    """
    return _known(ArrowExpression("column", name_of(attribute["dataType"]), (), (attribute["name"],)))


def translated(node: Node, arguments: Arguments) -> ArrowExpression:
    """The expression that a node is, from its translated children.

    Raises:
        RefusedError: none is known to compute the same.
    """
    kind = kind_of(node)
    rule = _RULES.get(kind)
    if rule is None:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.replace("RegExp", "Regexp")).lower()
        raise RefusedError(f"the function {words} runs in Spark")
    return rule(node, arguments)


def kind_of(node: Node) -> str:
    """The name of a node's class, without its package."""
    return str(node["class"]).rpartition(".")[2].strip("$")


def _words(type_: str) -> str:
    return str(json.loads(type_)["type"]) if type_.startswith("{") else type_


def _known(expression: ArrowExpression) -> ArrowExpression:
    type_ = expression.type
    if not type_.startswith("{") and arrow_type(type_) is None:
        raise RefusedError(f"a value of {type_} runs in Spark")
    return expression


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise RefusedError(f"{what} runs in Spark")


def _require_types(arguments: Arguments, types: Sequence[str], what: str) -> None:
    for each in arguments:
        _require(each.type in types, f"{what} of {_words(each.type)}")


def _constant(argument: ArrowExpression, what: str) -> Any:
    """The value of a literal that is not null."""
    _require(argument.operation == "literal" and argument.options[0].is_valid, f"{what} that differs from row to row")
    return argument.options[0].as_py()


# Columns and literals.


def _literal(node: Node, arguments: Arguments) -> ArrowExpression:
    type_, text = name_of(node["dataType"]), node["value"]
    if type_ == _VOID:
        return ArrowExpression("literal", type_, (), (pa.scalar(None, pa.null()),))
    arrow = arrow_type(type_)
    _require(arrow is not None, f"a value of {_words(type_)}")
    if text is None:
        return ArrowExpression("literal", type_, (), (pa.scalar(None, arrow),))
    return ArrowExpression("literal", type_, (), (_scalar(type_, text, arrow),))


def _scalar(type_: str, text: str, arrow: Any) -> pa.Scalar:
    match type_:
        case "boolean":
            return pa.scalar(text == "true")
        case "byte" | "short" | "integer" | "long" | "months":
            return pa.scalar(int(text), arrow)
        case "float":
            return pa.scalar(np.float32(text), arrow)
        case "double":
            return pa.scalar(float(text), arrow)
        case "string":
            # It stands for bytes that are no UTF-8, too.
            _require("\ufffd" not in text, "a text that may be no UTF-8")
            return pa.scalar(text, arrow)
        case "date":
            _require(_DATE.fullmatch(text) is not None, "a date outside of the years 1 to 9999")
            return pa.scalar(int(np.datetime64(text, "D").astype(np.int64)), pa.int32()).cast(arrow)
        case "timestamp" | "timestamp_ntz":
            text = text.replace("T", " ")
            _require(_TIMESTAMP.fullmatch(text) is not None, "a timestamp outside of the years 1 to 9999")
            return pa.scalar(int(np.datetime64(text, "us").astype(np.int64)), pa.int64()).cast(arrow)
        case "days":
            return pa.scalar(int(text), pa.int64()).cast(arrow)
    _require(decimal_type(type_) is not None, f"a literal of {type_}")
    return pa.array([text], pa.string()).cast(arrow)[0]


def _field(node: Node, arguments: Arguments) -> ArrowExpression:
    place = node["ordinal"]
    field = json.loads(arguments[0].type)["fields"][place]
    # It stands beside the type of a text.
    _require("__COLLATIONS" not in field.get("metadata", {}), "a text of a collation")
    return _known(ArrowExpression("field", name_of(field["type"]), tuple(arguments), (place,)))


def _size(node: Node, arguments: Arguments) -> ArrowExpression:
    _require(_words(arguments[0].type) == "array", f"the size of a {_words(arguments[0].type)}")
    _require(node["legacySizeOfNull"] is False, "the size of null as a number")
    return ArrowExpression("size", "integer", tuple(arguments))


def _element(counted_from: int) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        array, place = arguments
        _require(_words(array.type) == "array", f"an element of a {_words(array.type)}")
        at = _constant(place, "the place of an element")
        if counted_from == 1:
            _require(at != 0, "an element at place 0")
            at -= at > 0
        else:
            _require(at >= 0, "an element before the first")
        type_ = name_of(json.loads(array.type)["elementType"])
        return _known(ArrowExpression("element", type_, (array,), (at,)))

    return rule


# Comparisons and conditions.


def _is_ordered(type_: str) -> bool:
    return type_ in _ORDERED or decimal_type(type_) is not None


def _same_type(arguments: Arguments, what: str) -> str:
    """The type that all arguments have but for nulls of none, which is one whose values are compared."""
    types = {each.type for each in arguments if each.type != _VOID}
    _require(len(types) == 1, f"{what} of several types")
    (type_,) = types
    _require(_is_ordered(type_), f"{what} of {_words(type_)}")
    return type_


def _typed(arguments: Arguments, type_: str) -> tuple[ArrowExpression, ...]:
    """The arguments, with nulls of the type for those of none."""
    return tuple(_null(type_) if each.type == _VOID else each for each in arguments)


def _null(type_: str) -> ArrowExpression:
    return ArrowExpression("literal", type_, (), (pa.scalar(None, arrow_type(type_)),))


def _comparison(operation: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        type_ = _same_type(arguments, "a comparison")
        return ArrowExpression(operation, "boolean", _typed(arguments, type_))

    return rule


def _in(node: Node, arguments: Arguments) -> ArrowExpression:
    value, *among = arguments
    type_ = _same_type(arguments, "a choice")
    _require(bool(among) and all(each.operation == "literal" for each in among), "a choice of what is computed")
    scalars = [each.options[0] for each in among]
    valid = [scalar for scalar in scalars if scalar.is_valid]
    arrow = arrow_type(type_)
    numbers = [scalar for scalar in valid if not _is_nan(scalar)]
    options = value_set(numbers, arrow), len(valid) < len(scalars), len(numbers) < len(valid)
    return ArrowExpression("is_in", "boolean", _typed([value], type_), options)


def _is_nan(scalar: pa.Scalar) -> bool:
    return pa.types.is_floating(scalar.type) and isnan(scalar.as_py())


def _booleans(operation: str) -> Rule:
    return lambda node, arguments: ArrowExpression(operation, "boolean", tuple(arguments))


def _connected(operation: str) -> Rule:
    """A condition of others, of which Spark computes those first that two branches have in common."""

    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        return _in_any_turn(operation, arguments)

    return rule


def _in_any_turn(operation: str, arguments: Arguments) -> ArrowExpression:
    plain = (each.arguments[0] if each.operation == _ANY_TURN else each for each in arguments)
    result = ArrowExpression(operation, "boolean", tuple(plain))
    parts, connections = _parts(result)
    times = Counter(map(_likeness, parts))
    common = [part for part in parts if times[_likeness(part)] > 1]
    if len(connections) < 2 or not common:
        return result
    return ArrowExpression(_ANY_TURN, "boolean", (result, *common))


def _parts(condition: ArrowExpression) -> tuple[list[ArrowExpression], set[str]]:
    """The conditions that are connected, and how they are."""
    parts, connections, waiting = list[ArrowExpression](), set[str](), [condition]
    while waiting:
        each = waiting.pop()
        # Spark makes some choices connections of the other kinds.
        if each.operation in ("and", "or", "not", "case_when") and each.type == "boolean":
            connections.add(each.operation)
            waiting += each.arguments
        else:
            parts.append(each)
    return parts, connections


def _likeness(condition: ArrowExpression) -> tuple[str, frozenset[str]]:
    """Something that is equal for conditions that Spark may find to be the same, or the opposite."""
    is_order = condition.operation in ("less", "less_equal", "greater", "greater_equal")
    return "order" if is_order else condition.operation, condition.reads


def _nan(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, _FLOATING, "isnan")
    return ArrowExpression("is_nan", "boolean", tuple(arguments))


def _nan_else(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, _FLOATING, "nanvl")
    return ArrowExpression("nan_else", _same_type(arguments, "nanvl"), tuple(arguments))


def _case(node: Node, arguments: Arguments) -> ArrowExpression:
    pairs, others = arguments[: len(arguments) // 2 * 2], arguments[len(arguments) // 2 * 2 :]
    type_ = _same_type([*pairs[1::2], *others], "a choice")
    if not others:
        others = [_null(type_)]
    values = _typed([*pairs[1::2], *others], type_)
    conditions = _typed(pairs[::2], "boolean")
    branches = (part for branch in zip(conditions, values, strict=False) for part in branch)
    if type_ == "boolean":
        return _in_any_turn("case_when", (*branches, values[-1]))
    return ArrowExpression("case_when", type_, (*branches, values[-1]))


def _of_same_type(operation: str, what: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        type_ = _same_type(arguments, what)
        return ArrowExpression(operation, type_, _typed(arguments, type_))

    return rule


# Arithmetic.


def _arithmetic(operation: str, types: Sequence[str] = _NUMBERS) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        what = f"the function {operation}"
        _require_types(arguments, types, what)
        return ArrowExpression(operation, _same_type(arguments, what), tuple(arguments))

    return rule


def _whole_quotient(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, ("long",), "a whole quotient")
    return ArrowExpression("whole_quotient", "long", tuple(arguments))


def _to_long(operation: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments, ("long", "double"), f"the function {operation}")
        return arguments[0] if arguments[0].type == "long" else ArrowExpression(operation, "long", tuple(arguments))

    return rule


def _round(node: Node, arguments: Arguments) -> ArrowExpression:
    value, places = arguments
    at = _constant(places, "a number of decimal places")
    _require_types([value], (*_WHOLE, "double"), "rounding")
    _require(0 <= at <= _MOST_PLACES, f"rounding to {at} decimal places")
    return value if value.type in _WHOLE else ArrowExpression("rounded", "double", (value,), (at,))


def _in_any_order(operation: str) -> Rule:
    """A sum or product: Spark computes one of several whole numbers in an order of its own, and may fail by that."""
    of_two = _arithmetic(operation)

    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        leaves: list[ArrowExpression] = []
        plain = []
        for each in arguments:
            inner = each.arguments[0] if each.operation == _ANY_ORDER else each
            plain.append(inner if inner.operation == operation else each)
            of_it = each.arguments[1:] if inner is not each else each.arguments
            leaves += of_it if inner.operation == operation else [each]
        result = of_two(node, plain)
        if len(leaves) == len(arguments) or result.type not in _WHOLE:
            return result
        return ArrowExpression(_ANY_ORDER, result.type, (result, *leaves))

    return rule


# Casts.


def _cast(node: Node, arguments: Arguments) -> ArrowExpression:
    (value,) = arguments
    from_, to = value.type, name_of(node["dataType"])
    if from_ == to:
        return value
    if from_ == _VOID:
        return _known(_null(to))
    # Spark casts at once what it thinks it need not cast twice.
    _require((from_, to) != ("float", "double") or not _was_whole(value), "a cast of whole numbers to float and double")
    operation, options = _cast_by(from_, to)
    return ArrowExpression(operation, to, (value,), options)


def _was_whole(value: ArrowExpression) -> bool:
    """True if any part of a value is a float that is cast from a type of more digits."""
    seen, waiting = set[int](), [value]
    while waiting:
        part = waiting.pop()
        if part.operation == "cast_number" and part.type == "float" and part.arguments[0].type in ("integer", "long"):
            return True
        if id(part) not in seen:
            seen.add(id(part))
            waiting += part.arguments
    return False


def _cast_by(from_: str, to: str) -> tuple[str, tuple[Any, ...]]:
    """The function that casts from one type to another, and its options."""
    match from_, to:
        case (
            ("boolean" | "byte" | "short" | "integer" | "long" | "float" | "double"),
            ("boolean" | "byte" | "short" | "integer" | "long" | "float" | "double"),
        ):
            return "cast_number", ()
        case "string", ("byte" | "short" | "integer" | "long" | "float" | "double"):
            return "to_number", ()
        case "string", "boolean":
            return "to_boolean", ()
        case "string", "date":
            return "read_date", ()
        case "string", "timestamp":
            return "read_time", ()
        case "string", "binary":
            return "to_binary", ()
        case (("boolean" | "byte" | "short" | "integer" | "long"), "string"):
            return "to_string", ()
        case "date", "string":
            return "written", (("yyyy", "-", "MM", "-", "dd"),)
        case (("timestamp" | "timestamp_ntz"), "string"):
            return "written", (None,)
        case (("timestamp" | "timestamp_ntz"), "date"):
            return "date_of", ()
        case "date", ("timestamp" | "timestamp_ntz"):
            return "start_of", ()
        case (("timestamp" | "timestamp_ntz"), ("timestamp" | "timestamp_ntz")):
            return "same_time", ()
        case "timestamp", ("integer" | "long"):
            return "whole_units", (_SECOND,)
        case "timestamp", "double":
            return "fractional_seconds", ()
        case (("byte" | "short" | "integer" | "long"), "timestamp"):
            return "from_units", (_SECOND,)
    if _keeps_digits(from_, to):
        return "cast_decimal", ()
    raise RefusedError(f"a cast of {_words(from_)} to {_words(to)} runs in Spark")


def _keeps_digits(from_: str, to: str) -> bool:
    """True if every value of a type is one of the decimal type, digit by digit."""
    wide = decimal_type(to)
    narrow = (_DIGITS[from_], 0) if from_ in _DIGITS else decimal_type(from_)
    if wide is None or narrow is None:
        return False
    return wide[1] >= narrow[1] >= 0 and wide[0] - wide[1] >= narrow[0] - narrow[1]


# Dates and timestamps.


def _of_date(operation: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments, ("date",), f"the function {operation}")
        return ArrowExpression(operation, "integer", tuple(arguments))

    return rule


def _of_time(operation: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments, _INSTANTS, f"the function {operation}")
        return ArrowExpression(operation, "integer", tuple(arguments))

    return rule


def _unix(node: Node, arguments: Arguments) -> ArrowExpression:
    time, pattern = arguments
    if time.type == "string":
        time = _read_with(time, pattern, "timestamp")
    if time.type == "date":
        time = ArrowExpression("start_of", "timestamp", (time,))
    _require_types([time], ("timestamp",), "a time since 1970")
    return ArrowExpression("seconds_cut", "long", (time,))


def _units(microseconds: int) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments, ("timestamp",), "a time since 1970")
        return ArrowExpression("whole_units", "long", tuple(arguments), (microseconds,))

    return rule


def _from_units(microseconds: int) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments, _WHOLE, "a timestamp from a number")
        return ArrowExpression("from_units", "timestamp", tuple(arguments), (microseconds,))

    return rule


def _cut_date(node: Node, arguments: Arguments) -> ArrowExpression:
    date, unit = arguments
    to = TIMES_CUT.get(str(_constant(unit, "a unit")).upper())
    _require(to in ("YEAR", "QUARTER", "MONTH", "WEEK"), "a cut of a date to another unit")
    return ArrowExpression("cut_date", "date", (date,), (to,))


def _cut_timestamp(node: Node, arguments: Arguments) -> ArrowExpression:
    unit, time = arguments
    to = TIMES_CUT.get(str(_constant(unit, "a unit")).upper())
    _require(to is not None, "a cut of a timestamp to another unit")
    _require_types([time], ("timestamp",), "date_trunc")
    return ArrowExpression("cut_timestamp", "timestamp", (time,), (to,))


def _read_with(text: ArrowExpression, pattern: ArrowExpression, type_: str) -> ArrowExpression:
    function = READ_WITH.get(_constant(pattern, "a pattern"))
    _require(function is not None and type_ == "timestamp", "reading a time with another pattern")
    return ArrowExpression(str(function), type_, (text,))


def _get_timestamp(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, ("string",), "reading a time")
    return _read_with(arguments[0], arguments[1], name_of(node["dataType"]))


def _date_format(node: Node, arguments: Arguments) -> ArrowExpression:
    time, pattern = arguments
    _require_types([time], ("timestamp",), "date_format")
    parts = format_parts(str(_constant(pattern, "a pattern")))
    _require(parts is not None, "writing a time with another pattern")
    return ArrowExpression("written", "string", (time,), (parts,))


def _from_unixtime(node: Node, arguments: Arguments) -> ArrowExpression:
    seconds, pattern = arguments
    parts = format_parts(str(_constant(pattern, "a pattern")))
    _require(parts is not None, "writing a time with another pattern")
    time = ArrowExpression("from_units", "timestamp", (seconds,), (_SECOND,))
    return ArrowExpression("written", "string", (time,), (parts,))


def _date_sum(operation: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments[:1], ("date",), "a sum of days")
        _require_types(arguments[1:], ("byte", "short", "integer", "months"), "a sum of days")
        return ArrowExpression(operation, "date", tuple(arguments))

    return rule


def _date_difference(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, ("date",), "a difference")
    return ArrowExpression("subtract_days", "integer", tuple(arguments))


def _add_interval(node: Node, arguments: Arguments) -> ArrowExpression:
    time, interval = arguments
    _require_types([time], _INSTANTS, "a sum")
    operation = {"days": "add_microseconds", "months": "add_months_to_timestamp"}.get(interval.type)
    _require(operation is not None, f"a sum with {_words(interval.type)}")
    return ArrowExpression(str(operation), time.type, tuple(arguments))


def _timestamp_difference(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, _INSTANTS, "a difference")
    _require(node["legacyInterval"] is False, "an interval of an earlier kind")
    return ArrowExpression("between_timestamps", "days", tuple(arguments))


def _difference_of_dates(node: Node, arguments: Arguments) -> ArrowExpression:
    _require_types(arguments, ("date",), "a difference")
    _require(node["legacyInterval"] is False, "an interval of an earlier kind")
    return ArrowExpression("between_dates", "days", tuple(arguments))


# Texts.


def _text(operation: str, type_: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        _require_types(arguments, ("string",), f"the function {operation}")
        return ArrowExpression(operation, type_, tuple(arguments))

    return rule


def _with_text(operation: str, type_: str = "boolean", empty: bool = True) -> Rule:
    """A function of a text and others that are constants; `empty` says whether the first of these may be so."""

    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        text, *others = arguments
        _require_types(arguments, ("string",), f"the function {operation}")
        constants = tuple(_constant(each, f"a text of {operation}") for each in others)
        _require(empty or constants[0] != "", f"the function {operation} of no text")
        return ArrowExpression(operation, type_, (text,), constants)

    return rule


def _trim(operation: str) -> Rule:
    def rule(node: Node, arguments: Arguments) -> ArrowExpression:
        text, *characters = arguments
        _require_types(arguments, ("string",), "trim")
        trimmed = _constant(characters[0], "characters") if characters else " "
        _require(trimmed != "", "trim of no characters")
        return ArrowExpression(operation, "string", (text,), (trimmed,))

    return rule


def _substring(node: Node, arguments: Arguments) -> ArrowExpression:
    text, place, length = arguments
    _require_types([text], ("string",), "substring")
    at, count = _constant(place, "the place of a part"), _constant(length, "the length of a part")
    start = at - 1 if at > 0 else at
    stop: int | None = start + max(count, 0)
    if start < 0 and start + count >= 0:
        stop = None
    return ArrowExpression("slice", "string", (text,), (start, stop))


def _like(node: Node, arguments: Arguments) -> ArrowExpression:
    text, pattern = arguments
    _require_types(arguments, ("string",), "like")
    parts, characters = [], iter(str(_constant(pattern, "a pattern")))
    for character in characters:
        if character == "\\":
            character = next(characters, "")
            _require(character in ("%", "_", "\\"), "a pattern with another escaped character")
            parts.append(in_re2(character))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or in_re2(character))
    return ArrowExpression("matches", "boolean", (text,), (rf"(?s)\A{''.join(parts)}\z", None))


def _rlike(node: Node, arguments: Arguments) -> ArrowExpression:
    text, pattern = arguments
    _require_types(arguments, ("string",), "rlike")
    java = str(_constant(pattern, "a pattern"))
    try:
        found: Re2 = re2_of(java)
        pc.match_substring_regex(pa.array([""]), found.pattern)
    except (NotTheSameError, pa.ArrowInvalid) as error:
        raise RefusedError(f"the pattern {java!r} runs in Spark, as it has {error}") from error
    return ArrowExpression("matches", "boolean", (text,), (found.pattern, found.odd))


_RULES: dict[str, Rule] = {
    "Literal": _literal,
    "Cast": _cast,
    "GetStructField": _field,
    "Size": _size,
    "GetArrayItem": _element(0),
    "ElementAt": _element(1),
    "EqualTo": _comparison("equal"),
    "EqualNullSafe": _comparison("equal_or_both_null"),
    "LessThan": _comparison("less"),
    "LessThanOrEqual": _comparison("less_equal"),
    "GreaterThan": _comparison("greater"),
    "GreaterThanOrEqual": _comparison("greater_equal"),
    "In": _in,
    "And": _connected("and"),
    "Or": _connected("or"),
    "Not": _connected("not"),
    "IsNull": _booleans("is_null"),
    "IsNotNull": _booleans("is_not_null"),
    "IsNaN": _nan,
    "NaNvl": _nan_else,
    "CaseWhen": _case,
    "If": _case,
    "Coalesce": _of_same_type("coalesce", "coalesce"),
    "Greatest": _of_same_type("greatest", "greatest"),
    "Least": _of_same_type("least", "least"),
    "Add": _in_any_order("add"),
    "Subtract": _arithmetic("subtract"),
    "Multiply": _in_any_order("multiply"),
    "Divide": _arithmetic("divide", ("double",)),
    "IntegralDivide": _whole_quotient,
    "Remainder": _arithmetic("remainder"),
    "Pmod": _arithmetic("positive_remainder", ("integer", "long")),
    "UnaryMinus": _arithmetic("negative"),
    "UnaryPositive": lambda node, arguments: arguments[0],
    "Abs": _arithmetic("absolute"),
    "Floor": _to_long("floor"),
    "Ceil": _to_long("ceiling"),
    "Round": _round,
    "Sqrt": _arithmetic("square_root", ("double",)),
    "BitwiseAnd": _arithmetic("bitwise_and", _WHOLE),
    "BitwiseOr": _arithmetic("bitwise_or", _WHOLE),
    "BitwiseXor": _arithmetic("bitwise_xor", _WHOLE),
    "BitwiseNot": _arithmetic("bitwise_not", _WHOLE),
    "Year": _of_date("year"),
    "Quarter": _of_date("quarter"),
    "Month": _of_date("month"),
    "DayOfMonth": _of_date("day_of_month"),
    "DayOfYear": _of_date("day_of_year"),
    "DayOfWeek": _of_date("day_of_week"),
    "WeekDay": _of_date("weekday"),
    "WeekOfYear": _of_date("week_of_year"),
    "Hour": _of_time("hour"),
    "Minute": _of_time("minute"),
    "Second": _of_time("second"),
    "UnixTimestamp": _unix,
    "ToUnixTimestamp": _unix,
    "UnixSeconds": _units(_SECOND),
    "UnixMillis": _units(1000),
    "UnixMicros": _units(1),
    "SecondsToTimestamp": _from_units(_SECOND),
    "MillisToTimestamp": _from_units(1000),
    "MicrosToTimestamp": _from_units(1),
    "TruncDate": _cut_date,
    "TruncTimestamp": _cut_timestamp,
    "GetTimestamp": _get_timestamp,
    "DateFormatClass": _date_format,
    "FromUnixTime": _from_unixtime,
    "DateAdd": _date_sum("add_days"),
    "DateSub": _date_sum("subtract_days"),
    "DateDiff": _date_difference,
    "AddMonths": _date_sum("add_months"),
    "DateAddYMInterval": _date_sum("add_months"),
    "TimestampAddInterval": _add_interval,
    "TimestampAddYMInterval": _add_interval,
    "SubtractTimestamps": _timestamp_difference,
    "SubtractDates": _difference_of_dates,
    "Length": _text("length", "integer"),
    "OctetLength": _text("byte_length", "integer"),
    "Lower": _text("lower", "string"),
    "Upper": _text("upper", "string"),
    "StringTrim": _trim("trim"),
    "StringTrimLeft": _trim("trim_start"),
    "StringTrimRight": _trim("trim_end"),
    "Substring": _substring,
    "Concat": _text("concat", "string"),
    "ConcatWs": _text("concat_with", "string"),
    "StartsWith": _with_text("starts_with"),
    "EndsWith": _with_text("ends_with"),
    "Contains": _with_text("contains"),
    "StringReplace": _with_text("replace", "string", empty=False),
    "StringInstr": _with_text("place_of", "integer", empty=False),
    "Like": _like,
    "RLike": _rlike,
}
