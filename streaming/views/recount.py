"""Results of a view counted once more by another engine: DataFusion, over the files of the log and of the tables.

The laws of `streaming.views.laws` compute what must be by the code that computed what is, so that a fault of that code
is on both sides. Nothing here goes through Spark, or through the code that assigns windows, aggregates or overlays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import pairwise

import pyarrow as pa
import sqlglot
from deltalake import DeltaTable, QueryBuilder
from deltalake.schema import PrimitiveType
from sqlglot import exp

from streaming.base import (
    DAY,
    END_OF_EVENT_TIMES,
    EPOCH,
    FIRST_EVENT_TIME,
    MICROSECOND,
    interval,
    signed_interval,
)
from streaming.declare import Aggregate, Windowed
from streaming.log import RETRACTIONS
from streaming.operators import Finding
from streaming.windows import SessionWindow, Sliding, Tumbling

_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_DOUBLES = frozenset({"double", "float"})
_DISCRETE = _INTEGERS | {"string", "boolean", "date", "timestamp"}
_COMPARED = {
    **dict.fromkeys(_INTEGERS | _DOUBLES, "number"),
    "string": "text",
    "boolean": "boolean",
}
"""Types of columns that both engines compare alike with a literal of the kind."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
_CONDITIONS = (exp.And, exp.Or, exp.Not, exp.Is, *_COMPARISONS)
_TERMS = (exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Paren)
_DOUBLE, _WIDE = "cast({0} as double)", "cast({0} as decimal(38, 0))"
# A mere cast keeps the comment of the column in some plans of DataFusion, which then fails for finding none in others.
_MICROS = "(arrow_cast({0}, 'Int64') + 0)"
_IN_ORDER = "case when isnan({0}) then cast('NaN' as double) else cast({0} as double) + 0.0 end"
"""A double as Spark orders it: DataFusion takes -0.0 for less than 0.0, and a NaN by its sign."""
_INFINITY = "cast('Infinity' as double)"
_EPSILON = 2.0**-52
_GREATEST = 1.7e308
_DAY_MICROS = 86_400_000_000
_ROWS_AT_ONCE = 5_000_000
"""Rows of whole days that a query counts, of more than one day about as many: it has all its results in memory."""


class Unsupported(Exception):
    """The view computes what is not counted again here; the text says what."""


@dataclass(frozen=True)
class Scope:
    """The results that are compared: of windows that end by `closed`, of days from `since` on but for those `without`.

    Where `closed` is null no window is closed. `told` says so in words, behind what is compared.
    """

    closed: datetime | None
    since: date | None = None
    without: Collection[date] = ()
    told: str = ""

    def condition(self, closed: bool = True) -> str:
        """SQL over `_start` and `_end`, microseconds since the epoch; `closed`: whether only closed windows are."""
        conditions = ["true"]
        if closed:
            conditions.append("false" if self.closed is None else f"(_end <= {_instant(self.closed)})")
        if self.since is not None:
            conditions.append(f"(_start >= {_midnight(self.since)})")
        if self.without:
            days = ", ".join(str((day - EPOCH.date()).days) for day in sorted(self.without))
            conditions.append(f"({_floor('_start', _DAY_MICROS)} / {_DAY_MICROS} not in ({days}))")
        return " and ".join(conditions)


@dataclass(frozen=True)
class _Stretch:
    """Windows that begin from one instant on until before another one, microseconds since the epoch; None for any."""

    begin: int | None = None
    end: int | None = None

    def has(self, number: str, more: int = 0) -> str:
        """SQL: whether the number is in it, or up to so many microseconds behind it."""
        bounds = [] if self.begin is None else [f"({number} >= {self.begin})"]
        bounds += [] if self.end is None else [f"({number} < {self.end + more})"]
        return " and ".join(bounds) or "true"


@dataclass(frozen=True)
class _Value:
    """A value of a result: SQL over the `rows` of a window, and the form in which stored and counted ones are compared.

    `{0}` stands in `rows` and `tolerance` for `of_row`, SQL over one row, and in `form` for the value. `tolerance`, of
    doubles: how far two values may be apart that differ in the order of rows alone.
    """

    rows: str
    of_row: str = "null"
    form: str = "{0}"
    tolerance: str | None = None

    def differs(self, name: str, allowed: str) -> str:
        """SQL over the two sides of a result: whether its values are different by more than is `allowed`."""
        # Of doubles the sum of the one that there is: DataFusion's max has nothing below the least finite number.
        one = "max" if self.tolerance is None else "sum"
        stored, counted = (f"{one}({name}) filter (where _side = {side})" for side in (1, 2))
        if self.tolerance is None:
            return f"({stored} is distinct from {counted})"
        allowed = f"max({allowed}) filter (where _side = 2)"
        return (
            f"(case when ({stored} is null) or ({counted} is null) then ({stored} is distinct from {counted}) "
            f"when isnan({stored}) or isnan({counted}) then (isnan({stored}) <> isnan({counted})) "
            f"else ({stored} <> {counted}) and (abs({stored} - {counted}) > "
            f"case when {allowed} < {_GREATEST} then {allowed} else 0.0 end) end)"
        )


class Recount:
    """The results of a view, counted from the files of its `log`; aggregates that are not counted here are left out.

    Raises:
        Unsupported: the windows, the keys or the choice of rows are none that are made here.
    """

    def __init__(self, view: Windowed, log: DeltaTable) -> None:
        self._view = view
        self._log = log
        # Of derived columns a declaration does not say for certain which type Spark gives them.
        columns = log.schema().fields
        self._types = {column.name: column.type.type for column in columns if isinstance(column.type, PrimitiveType)}
        if view.distinct or view.function is not None:
            raise Unsupported("rows that count once" if view.distinct else "what a function makes of a window")
        if view.of.takes_back or log.transaction_version(RETRACTIONS) is not None:
            raise Unsupported("rows of which some take back others")
        if others := [key for key in view.by if self._types.get(key) not in _DISCRETE]:
            raise Unsupported(f"the key {others[0]!r}")
        if view.diverts:
            raise Unsupported("rows but for those that cannot be computed")
        window = view.window
        if not isinstance(window, Tumbling | Sliding) and not (
            isinstance(window, SessionWindow) and window.gap is not None
        ):
            raise Unsupported(f"windows of {type(window).__name__}")
        at, chosen = _micros(view.of.event_time), "true" if view.where is None else self._condition(view.where)
        self._rows = (
            f"select *, {at} as _at, {_micros('_watermark')} as _stamp from log where (_day is not null) and "
            f"({at} >= {_instant(FIRST_EVENT_TIME)}) and ({at} < {_instant(END_OF_EVENT_TIMES)}) and {chosen}"
        )
        values = {name: self._value(each) for name, each in view.aggregates.items()}
        self._values = {_name(name): value for name, value in values.items() if value is not None}
        left_out = ", ".join(name for name, value in values.items() if value is None)
        self._without = f"; without {left_out}" if left_out else ""
        self._keys = ", ".join((*map(_name, view.by), "_start", "_end"))

    def first(self, first: DeltaTable, scope: Scope) -> Finding:
        """First results against the rows that came in time; there is none of a window that is not closed."""
        stored = f"select * from ({self._stored('first_')}) as published where {scope.condition(closed=False)}"
        return self._compare(
            "first result", stored, "_on_time", "windows: stream = DataFusion, on-time rows", scope, {"first_": first}
        )

    def current(
        self, first: DeltaTable, updates: DeltaTable | None, corrections: DeltaTable | None, scope: Scope
    ) -> Finding | None:
        """First results overlaid with updates and corrections against all rows.

        None where windows merge: which results one stands for does not follow from its bounds.
        """
        if self._view.window.merging:
            return None
        tables = {"first_": first}
        layers = [self._stored("first_", "-1 as _through", "0 as _layer", "false as _hidden")]
        sides = (("updates_", updates, "_batch"), ("corrections_", corrections, "_through_batch"))
        for layer, (name, table, through) in enumerate(sides, 1):
            if table is not None:
                tables[name] = table
                retracts = any(field.name == "_retracted" for field in table.schema().fields)
                hidden = "coalesce(_retracted, false) as _hidden" if retracts else "false as _hidden"
                layers.append(self._stored(name, f"{through} as _through", f"{layer} as _layer", hidden))
        newest = f"rank() over (partition by {self._keys} order by _through desc, _layer desc) as _place"
        overlaid = f"select *, {newest} from ({' union all '.join(layers)}) as layers"
        stored = f"select * from ({overlaid}) as overlaid where (_place = 1) and (not _hidden) and {scope.condition()}"
        return self._compare("convergence", stored, "true", "windows: current = DataFusion, all rows", scope, tables)

    def _stored(self, table: str, *more: str) -> str:
        keys = [
            *map(_name, self._view.by),
            f"{_micros('window_start')} as _start",
            f"{_micros('window_end')} as _end",
        ]
        values = (f"{value.form.format(name)} as {name}" for name, value in self._values.items())
        return f"select {', '.join((*keys, *values, *more))} from {table}"

    def _compare(
        self, law: str, stored: str, rows: str, words: str, scope: Scope, tables: Mapping[str, DeltaTable]
    ) -> Finding:
        """Stored and counted results in one list, grouped by key and window: each is there once a side, and equal."""
        values = "".join(f", {name}" for name in self._values)
        # A column for each: DataFusion takes two aggregates of one column for the same, whatever it is cast to.
        inputs = "".join(f", {value.of_row} as _v_{place}" for place, value in enumerate(self._values.values()))
        counted, allowed, doubles = "", "", list[str]()
        for place, (name, value) in enumerate(self._values.items()):
            counted += f", {value.form.format(value.rows.format(f'_v_{place}'))} as {name}"
            if value.tolerance is not None:
                doubles.append(f"_t_{place}")
                allowed += f", {value.tolerance.format(f'_v_{place}')} as _t_{place}"
        nothing = "".join(f", cast(null as double) as {name}" for name in doubles)
        told = "".join(f", {name}" for name in doubles)
        once = [f"(count(*) filter (where _side = {side}) <> 1)" for side in (1, 2)]
        wrong = " or ".join(
            (*once, *(value.differs(name, f"_t_{place}") for place, (name, value) in enumerate(self._values.items())))
        )
        engine = QueryBuilder().register("log", self._log)
        for name, table in tables.items():
            engine.register(name, table)
        checked = broken = 0
        for stretch in self._stretches():
            paired = f"select {self._keys}{inputs} from ({self._windows(stretch)}) as paired where {rows}"
            truth = f"select {self._keys}{counted}{allowed} from ({paired}) as taken group by {self._keys}"
            within = stretch.has("_start")
            both = (
                f"select {self._keys}{values}{nothing}, 1 as _side from ({stored}) as stored where {within} union all "
                f"select {self._keys}{values}{told}, 2 as _side from ({truth}) as counted "
                f"where {within} and {scope.condition()}"
            )
            results = f"select ({wrong}) as wrong from ({both}) as sides group by {self._keys}"
            query = f"select count(*) as checked, count(*) filter (where wrong) as broken from ({results}) as results"
            [row] = pa.table(engine.execute(query)).to_pylist()
            checked, broken = checked + row["checked"], broken + row["broken"]
        return Finding(law, self._view.name, checked, broken, words + self._without + scope.told, independent=True)

    def _stretches(self) -> Sequence[_Stretch]:
        """All of time, cut between days of many rows; of sessions, which a cut may lie in, in one piece."""
        files = pa.table(self._log.get_add_actions(flatten=True))
        if self._view.window.merging or f"partition.{DAY}" not in files.column_names:
            return [_Stretch()]
        rows = Counter[date]()
        for day, number in zip(files[f"partition.{DAY}"].to_pylist(), files["num_records"].to_pylist(), strict=True):
            if day is not None:
                rows[day] += number or 0
        cuts, taken = list[int](), 0
        for day in sorted(rows):
            if taken and taken + rows[day] > _ROWS_AT_ONCE:
                cuts.append(_midnight(day))
                taken = 0
            taken += rows[day]
        return [_Stretch(*bounds) for bounds in pairwise((None, *cuts, None))]

    def _windows(self, stretch: _Stretch) -> str:
        """SQL: the rows once per window, with `_start` and `_end` and whether they are `_on_time` for it."""
        window = self._view.window
        if isinstance(window, SessionWindow):
            assert window.gap is not None
            return self._sessions(interval(window.gap) // MICROSECOND)
        assert isinstance(window, Tumbling | Sliding)
        size, period = interval(window.size) // MICROSECOND, interval(window.period) // MICROSECOND
        last = _floor("_at", period, signed_interval(window.offset) // MICROSECOND)
        starts = f"generate_series({last} - {(-(-size // period) - 1) * period}, {last}, {period})"
        rows = f"{self._rows} and {stretch.has(_micros(self._view.of.event_time), size)}"
        started = f"select *, unnest({starts}) as _start from ({rows}) as valid"
        return (
            f"select *, _start + {size} as _end, (_stamp is null) or (_start + {size} > _stamp) as _on_time "
            f"from ({started}) as started where (_start + {size} > _at)"
        )

    def _sessions(self, gap: int) -> str:
        """Rows of a key in time, a gap or less apart from the one before: of late ones no session is looked at here."""
        by = ", ".join((*map(_name, self._view.by), "_on_time"))
        judged = f"select *, (_stamp is null) or (_at >= _stamp) as _on_time from ({self._rows}) as valid"
        before = f"lag(_at) over (partition by {by} order by _at)"
        begun = f"select *, case when _at - {before} <= {gap} then 0 else 1 end as _begins from ({judged}) as judged"
        number = f"sum(_begins) over (partition by {by} order by _at)"
        numbered = f"select *, {number} as _session from ({begun}) as begun"
        whole = f"over (partition by {by}, _session)"
        bounds = f"min(_at) {whole} as _start, max(_at) {whole} + {gap} as _end"
        return f"select *, {bounds} from ({numbered}) as numbered"

    def _value(self, aggregate: Aggregate) -> _Value | None:
        """None where it is not counted here."""
        tree = sqlglot.parse_one(aggregate.sql, dialect="spark")
        if isinstance(tree, exp.Count) and isinstance(tree.this, exp.Literal):
            return _Value("count(*)")
        try:
            if isinstance(tree, exp.CountIf):
                return _Value("count(*) filter (where {0})", self._condition(tree.this.sql("spark")))
            if isinstance(tree, exp.Avg) and isinstance(tree.this, exp.Cast) and tree.this.is_type("double"):
                return _added(self._condition(tree.this.this.sql("spark")), averaged=True)
        except Unsupported:
            return None
        distinct = isinstance(tree, exp.ArraySize) and isinstance(tree.this, exp.ArrayUniqueAgg)
        value = tree.this.this if distinct else tree.this
        type_ = self._type(value) if isinstance(value, exp.Column) else ""
        column = _name(value.name) if type_ else ""
        if distinct and type_ in _DISCRETE:
            return _Value("count(distinct {0})", column)
        if isinstance(tree, exp.Sum | exp.Avg) and type_ in _DOUBLES:
            return _added(column, isinstance(tree, exp.Avg))
        if isinstance(tree, exp.Avg) and type_ in _INTEGERS:
            return _added(column, averaged=True)
        if isinstance(tree, exp.Sum) and type_ in _INTEGERS:
            return _Value("sum({0})", _WIDE.format(column), _WIDE)
        if isinstance(tree, exp.Sum) and type_.startswith("decimal"):
            exact = f"arrow_cast({{0}}, 'Decimal256(76, {_scale(type_)})')"
            return _Value("sum({0})", exact.format(column), exact)
        if isinstance(tree, exp.Min | exp.Max) and type_:
            return _extreme("min" if isinstance(tree, exp.Min) else "max", column, type_)
        return None

    def _type(self, column: exp.Column) -> str:
        """Empty for what is no column of the rows, such as a field of a struct."""
        return "" if column.table else self._types.get(column.name, "")

    def _condition(self, text: str) -> str:
        """A condition of Spark for DataFusion."""
        tree = sqlglot.parse_one(text, dialect="spark")
        known = all(isinstance(node, (*_CONDITIONS, *_TERMS)) for node in tree.walk())
        known = known and all(map(self._type, tree.find_all(exp.Column)))
        if not known or self._kind(tree) != "boolean" or not all(map(self._is_alike, tree.find_all(*_COMPARISONS))):
            raise Unsupported(f"the condition {text!r}")
        # DataFusion takes more than it should into the right side of some operators, unless there are brackets.
        for node in list(tree.find_all(exp.Connector, exp.Not)):
            for side in ("this", "expression"):
                if isinstance(node.args.get(side), exp.Expr) and not isinstance(node.args[side], exp.Paren):
                    node.set(side, exp.Paren(this=node.args[side]))
        return f"({tree.transform(self._in_order).sql('postgres', identify=True)})"

    def _is_alike(self, comparison: exp.Expr) -> bool:
        """True if all that is compared is of one kind, so that no engine casts a text to a number or the reverse."""
        kinds = {self._kind(side) for side in comparison.iter_expressions() if not isinstance(side, exp.Null)}
        return len(kinds) == 1 and None not in kinds

    def _kind(self, node: exp.Expr) -> str | None:
        """The kind of a part of a condition; None for what is not compared here."""
        if isinstance(node, exp.Column):
            return _COMPARED.get(self._type(node))
        if isinstance(node, exp.Literal):
            return "text" if node.is_string else "number"
        if isinstance(node, exp.Paren) or (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)):
            return self._kind(node.this)
        return "boolean" if isinstance(node, (exp.Boolean, *_CONDITIONS)) else None

    def _in_order(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and self._type(node) in _DOUBLES:
            return exp.Var(this=f"({_IN_ORDER.format(_name(node.name))})")
        return node


def _added(column: str, averaged: bool) -> _Value:
    """The sum or mean in doubles; two of them differ by what the order of their summands may make of these."""
    value, amounts = _DOUBLE.format(column), "sum(abs({0}))"
    if averaged:
        return _Value("sum({0}) / nullif(count({0}), 0)", value, _DOUBLE, f"{amounts} * {2 * _EPSILON!r}")
    return _Value("sum({0})", value, _DOUBLE, f"{amounts} * count({{0}}) * {_EPSILON!r}")


def _extreme(function: str, column: str, type_: str) -> _Value | None:
    """The least or greatest; of doubles NaN is the greatest, as in Spark, where DataFusion takes any of the two.

    Of numbers that are not finite it is asked whether there are any: to DataFusion, too, the finite ones have an end.
    """
    if type_ in _INTEGERS | {"string", "date"} or type_.startswith("decimal"):
        return _Value(f"{function}({{0}})", column)
    if type_ == "timestamp":
        return _Value(f"{function}({{0}})", _MICROS.format(column), _MICROS)
    if type_ not in _DOUBLES:
        return None
    there = "case when count(*) filter (where {1}) > 0 then {0} end".format
    in_order = [
        there(f"-{_INFINITY}", f"{{0}} = -{_INFINITY}"),
        f"{function}({{0}}) filter (where abs({{0}}) < {_INFINITY})",
        there(_INFINITY, f"{{0}} = {_INFINITY}"),
        there("cast('NaN' as double)", "isnan({0})"),
    ]
    if function == "max":
        in_order.reverse()
    return _Value(f"coalesce({', '.join(in_order)})", _DOUBLE.format(column), _DOUBLE, "cast(0 as double)")


def _scale(decimal: str) -> int:
    return int(decimal.rstrip(")").rpartition(",")[2])


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _micros(column: str) -> str:
    return _MICROS.format(_name(column))


def _instant(instant: datetime) -> int:
    return (instant - EPOCH) // MICROSECOND


def _midnight(day: date) -> int:
    return _instant(datetime.combine(day, time(), UTC))


def _floor(number: str, step: int, offset: int = 0) -> str:
    """The number rounded down to a step from the offset; SQL's remainder has the sign of the number."""
    rest = f"({number} - ({offset})) % {step}"
    return f"({number} - (({rest} + {step}) % {step}))"
