"""Pipelines drawn from a seed, each operator with what one row may do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, TypeVar

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    CsvFiles,
    Custom,
    Delivery,
    Enriched,
    Files,
    Joined,
    Json,
    JsonLines,
    Keyed,
    LocalDays,
    ParquetFiles,
    Pipeline,
    RowFunction,
    Rule,
    Selected,
    SessionWindow,
    Side,
    Sliding,
    Stream,
    Tumbling,
    Window,
    Windowed,
    WindowFunction,
    WindowJoined,
    absence,
    agg,
    deduplicated,
    rolling,
    top,
)
from streaming.base.errors import DeclarationError
from streaming.declare import Aggregate, Operator
from tests.support.fuzz.expressions import FAR, UNSURE, Expression, Failed, Row, condition, expressions
from tests.support.fuzz.functions import PARTS, WINDOW_FUNCTIONS, Answer, OfBoth, OfRow, OnRow, Part, on_quiet
from tests.support.fuzz.values import COLUMNS, INTEGERS, KEYS, Type

HOSTILE = "hostile"
"""The `uid` of the hostile row."""
_T = TypeVar("_T")
_GREAT = 2**53


@dataclass(frozen=True)
class Source:
    """A stream, the types of its columns, and its expressions as Python has them."""

    stream: Stream
    types: Mapping[str, Type]
    derived: Mapping[str, Expression]
    rules: Mapping[str, Expression]


@dataclass(frozen=True)
class Drawn:
    """An operator, and what the hostile row may do to it.

    `fails`: of a row of a stream, `None` where it is left open. `confined`: what is allowed to differ where the row is
    computed, told by a row of a table and the hostile one. `within`: how far from the row's time a window that it
    changes may begin or end; None where nothing of its key need be the same.
    """

    kind: str
    operator: Operator
    fails: Callable[[str, Row], bool | None]
    within: timedelta | None = None
    by_uid: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fuzzed:
    """A pipeline of two streams."""

    pipeline: Pipeline
    sources: tuple[Source, ...]
    operators: tuple[Drawn, ...] = field(default=())


def draw(random: Random) -> Fuzzed:
    """A pipeline of one stream, or of two with a key in common that meet."""
    key = random.choice(KEYS)
    sources = tuple(_source(random, name, key) for name in random.choice((("lefts",), ("lefts", "rights"))))
    kinds = random.sample(list(_OF_ONE), 3)
    if len(sources) > 1:
        kinds = [*random.sample(list(_OF_TWO), 2), kinds[0]]
    operators = tuple(
        {**_OF_ONE, **_OF_TWO}[kind](random, f"{kind}_{place}", sources) for place, kind in enumerate(kinds)
    )
    streams = tuple(source.stream for source in sources)
    declared = tuple(drawn.operator for drawn in operators)
    deliveries = _deliveries(random, streams, declared)
    pipeline = Pipeline(name="fuzzed", streams=streams, operators=declared, deliveries=deliveries)
    return Fuzzed(pipeline, sources, operators)


def _source(random: Random, name: str, key: Type) -> Source:
    # Functions in Python know these, so that they are there more often than not.
    picked = random.sample([*COLUMNS], 5) + [each for each in ("i64", "s", "xs") if random.random() < 0.6]
    types = {"k": key, **{column: of for column, of in COLUMNS.items() if column in picked}}
    among = list(expressions({column: of for column, of in types.items() if column != "k"}))
    derived = {f"e{place}": each for place, each in enumerate(random.sample(among, random.randint(0, 2)))}
    rules = {f"r{place}": condition(random, among) for place in range(random.randint(0, 2))}
    needed = [column for column in types if random.random() < 0.1]
    columns = ", ".join(f"{each} {of.ddl}{' not null' if each in needed else ''}" for each, of in types.items())
    stream = Stream(
        name,
        Files(f"landing/{name}"),
        Json(f"uid string not null, at timestamp, {columns}"),
        "at",
        BoundedOutOfOrderness(random.choice(("0 seconds", "5 seconds"))),
        rules=tuple(Rule(rule, each.sql) for rule, each in rules.items()),
        derived={each: of.sql for each, of in derived.items()},
        keep_raw=random.random() < 0.3,
    )
    return Source(stream, types, derived, rules)


def _on_error(random: Random, declare: Callable[..., _T]) -> _T:
    """The operator with a side output for rows that fail, where its kind has one."""
    if random.random() < 0.5:
        try:
            return declare(on_error="side")
        except DeclarationError:
            pass
    return declare()


def _among(source: Source, name_of: Callable[[str], str] = str) -> list[Expression]:
    return list(expressions({name: of for name, of in source.types.items() if name != "k"}, name_of))


def _failing(each: Sequence[Expression], row: Row) -> bool:
    return any(expression.may_fail(row) for expression in each)


def _outcome(where: Expression | None, then: Sequence[Expression], row: Row) -> bool:
    """Whether a row fails where it is filtered, then computed."""
    if where is not None:
        try:
            if where.of(row) is not True:
                return False
        except Failed:
            return True
    return _failing(then, row)


def _parts(source: Source) -> list[Part]:
    return [part for part in PARTS if part.column in source.types]


def _selected(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    source = random.choice(sources)
    among = _among(source)

    def output() -> tuple[Side, Expression | None, list[Expression]]:
        where = condition(random, among) if random.random() < 0.4 else None
        values = random.sample(among, 2)
        select = {"uid": "uid", **{f"v{place}": each.sql for place, each in enumerate(values)}}
        return Side(select, None if where is None else where.sql), where, values

    outputs = [output() for _ in range(random.randint(1, 2))]
    own, *others = outputs
    parts = _parts(source)
    part = random.choice(parts) if parts and random.random() < 0.4 else None
    more: dict[str, Any] = {}
    if part is not None:
        select = {"uid": "uid", part.column: part.column}
        own = (Side(select, own[0].where), own[1], [])
        more = {"function": RowFunction(OfRow(part.of), "uid string, n bigint")}
    declare = partial(
        Selected, name, source.stream, own[0].select, own[0].where,
        sides={f"other{place}": side for place, (side, _, _) in enumerate(others)}, **more,
    )  # fmt: skip

    def fails(stream: str, row: Row) -> bool | None:
        if stream != source.stream.name:
            return False
        if any(_outcome(where, then, row) for _, where, then in (own, *others)):
            return True
        if part is None or (own[1] is not None and own[1].of(row) is not True):
            return False
        return part.fails(row[part.column])

    return Drawn("Selected", _on_error(random, declare), fails, by_uid=("uid",))


def _window(random: Random, *, sessions: bool = True) -> tuple[Window, timedelta]:
    windows: list[tuple[Window, timedelta]] = [
        (Tumbling("10 seconds"), timedelta(seconds=10)),
        (Sliding("10 seconds", "5 seconds"), timedelta(seconds=10)),
        (Sliding("4 seconds", "6 seconds"), timedelta(seconds=6)),
        (LocalDays("America/New_York"), timedelta(days=2)),
        (Custom("array(struct(at, at + interval 7 seconds))", within="1 minute"), timedelta(seconds=10)),
        *([(SessionWindow("4 seconds"), timedelta(seconds=4))] * 2 if sessions else []),
    ]
    return random.choice(windows)


def _aggregate(random: Random, among: Sequence[Expression]) -> tuple[Aggregate, Expression, bool]:
    """An aggregate, the expression that it is of, and whether a great value may be too much for its type."""
    each = random.choice(among)
    number = [agg.sum, agg.mean, agg.stddev, agg.median, partial(agg.percentile, share=0.9)]
    orderly = [agg.minimum, agg.maximum, agg.count_distinct, agg.mode, agg.collect]
    any_ = [agg.first, agg.last, agg.first_arrived, agg.last_arrived]
    of_kind = any_ + (orderly if each.kind not in ("map", "binary") else []) + (number if each.kind == "number" else [])
    make: Any = random.choice(of_kind)
    if random.random() < 0.15:
        where = condition(random, among)
        return random.choice((agg.count, agg.share))(where.sql), where, False
    return make(each.sql), each, make in number


def _windowed(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    source = random.choice(sources)
    among = _among(source)
    window, within = _window(random)
    where = condition(random, among) if random.random() < 0.3 else None
    update = {"late": "update", "allowed_lateness": "20 seconds"}
    policy: dict[str, Any] = random.choice(({}, {}, update, {"late": "drop"}))
    early: dict[str, Any] = {"early": "each batch"} if random.random() < 0.2 else {}
    by: dict[str, Any] = {"by": ("k",)} if random.random() < 0.8 else {}
    distinct: dict[str, Any] = {"distinct": ("k",)} if random.random() < 0.15 else {}
    parts = [part for part in _parts(source) if part.column in WINDOW_FUNCTIONS]
    part = random.choice(parts) if parts and random.random() < 0.25 else None
    drawn = {} if part else {f"v{place}": _aggregate(random, among) for place in range(random.randint(1, 3))}
    computed: dict[str, Any] = {"aggregates": {each: of for each, (of, _, _) in drawn.items()}}
    if part is not None:
        computed = {"function": WindowFunction(WINDOW_FUNCTIONS[part.column], "rows bigint, most bigint")}
    declare = partial(
        Windowed, name, source.stream, window, where=None if where is None else where.sql,
        **computed, **by, **distinct, **policy, **early,
    )  # fmt: skip

    def fails(stream: str, row: Row) -> bool | None:
        if stream != source.stream.name:
            return False
        if _outcome(where, [of for _, of, _ in drawn.values()], row):
            # Which rows are computed of those that are filtered first is the business of the window.
            return None
        if part is not None and part.fails(row[part.column]):
            return None
        if where is not None and where.of(row) is not True:
            return False
        great = (of.of(row) for _, of, sums in drawn.values() if sums)
        return None if any(_is_great(value) for value in great) else False

    return Drawn("Windowed", _on_error(random, declare), fails, within)


def _is_great(value: Any) -> bool:
    return value is FAR or value is UNSURE or (value is not None and abs(value) > _GREAT)


def _keyed(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    source = random.choice(sources)
    parts = _parts(source)
    if not parts or random.random() < 0.35:
        return _library(random, name, source)
    part = random.choice(parts)
    order: Any = random.choice(("arrival", "event"))
    idle: dict[str, Any] = {"idle": "30 seconds"} if random.random() < 0.4 else {}
    declare = partial(
        Keyed, name, source.stream, ("k",), "seen bigint, last bigint", "n bigint, value bigint, uid string",
        OnRow(part.of), {"quiet": on_quiet}, order, **idle,
    )  # fmt: skip

    def fails(stream: str, row: Row) -> bool | None:
        return stream == source.stream.name and part.fails(row[part.column])

    return Drawn("Keyed", _on_error(random, declare), fails)


def _library(random: Random, name: str, source: Source) -> Drawn:
    by = ("k",)
    # Of whole rows all types have to be known.
    known = None not in source.stream.types.values()
    made: list[Operator] = [absence(name, source.stream, by, after="6 seconds")]
    made += [deduplicated(name, source.stream, by)] if known else []
    for column, of in source.types.items():
        if of.kind in INTEGERS and column != "k":
            whole: dict[str, Any] = {"whole": f"min_by(*, {column})"} if known else {}
            made += [
                rolling(name, source.stream, {"n": "count(*)", "most": f"max({column})", **whole}, by=by),
                top(name, source.stream, n=2, item="uid", value=column, by=by),
            ]
    return Drawn("library", random.choice(made), lambda stream, row: False)


def _of_pairs(random: Random, sources: Sequence[Source]) -> tuple[dict[str, str], dict[str, list[Expression]]]:
    """What is selected of pairs, and the expressions in it by the stream that they are of."""
    select, read = {"luid": "left_uid", "ruid": "right_uid"}, {}
    common = {*sources[0].stream.columns} & {*sources[1].stream.columns}
    for side, source in zip(("left", "right"), sources, strict=True):

        def name_of(column: str, side: str = side) -> str:
            return f"{side}_{column}" if column in common else column

        read[source.stream.name] = random.sample(_among(source, name_of), 1)
        select[f"v{side}"] = read[source.stream.name][0].sql
    return select, read


def _of_pair(read: Mapping[str, Sequence[Expression]]) -> Callable[[str, Row], bool | None]:
    return lambda stream, row: None if _failing(read[stream], row) else False


def _joined(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    select, read = _of_pairs(random, sources)
    kind: Any = random.choice(("inner", "left", "outer"))
    late: Any = random.choice(("join", "drop"))
    where: dict[str, Any] = {"where": "left_uid <> right_uid"} if random.random() < 0.3 else {}
    left, right = (source.stream for source in sources)
    declare = partial(Joined, name, left, right, ("k",), ("-6 seconds", "9 seconds"), kind, select, late=late, **where)
    return Drawn("Joined", _on_error(random, declare), _of_pair(read), by_uid=("luid", "ruid"))


def _window_joined(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    select, read = _of_pairs(random, sources)
    window, within = _window(random)
    left, right = (source.stream for source in sources)
    late: Any = random.choice(("correct", "drop"))
    kind: Any = random.choice(("inner", "left", "outer"))
    declare = partial(WindowJoined, name, left, right, ("k",), window, select, kind, late=late)
    return Drawn("WindowJoined", _on_error(random, declare), _of_pair(read), within)


def _co_grouped(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    window, within = _window(random)
    side = random.randrange(2)
    part = random.choice(_parts(sources[side]) or [PARTS[-1]])
    if part.column not in sources[side].types:
        return _windowed(random, name, sources)
    left, right = (source.stream for source in sources)
    declare = partial(
        CoGrouped, name, left, right, ("k",), window, "lefts int, rights int, most bigint",
        OfBoth(part.of, side == 0), late=random.choice(("correct", "drop")),
    )  # fmt: skip

    def fails(stream: str, row: Row) -> bool | None:
        return None if stream == sources[side].stream.name and part.fails(row[part.column]) else False

    return Drawn("CoGrouped", _on_error(random, declare), fails, within)


def _enriched(random: Random, name: str, sources: Sequence[Source]) -> Drawn:
    source = random.choice(sources)
    parts = _parts(source)
    if not parts:
        return _selected(random, name, sources)
    part = random.choice(parts)
    operator = Enriched(
        name, source.stream, Answer(part.of), {"answer": "bigint"}, select=("uid", part.column), timeout="60 seconds"
    )

    def fails(stream: str, row: Row) -> bool | None:
        return stream == source.stream.name and part.fails(row[part.column])

    return Drawn("Enriched", operator, fails, by_uid=("uid",))


_Draws = Mapping[str, Callable[[Random, str, Sequence[Source]], Drawn]]
_OF_ONE: _Draws = {
    "selected": _selected,
    "windowed": _windowed,
    "windowed_too": _windowed,
    "keyed": _keyed,
    "enriched": _enriched,
}
_OF_TWO: _Draws = {"joined": _joined, "window_joined": _window_joined, "co_grouped": _co_grouped}


def _deliveries(random: Random, streams: Sequence[Stream], operators: Sequence[Operator]) -> tuple[Delivery, ...]:
    """Deliveries into files: of a stream's valid or rejected rows, and of what an operator publishes."""
    target: Any = random.choice((JsonLines, JsonLines, CsvFiles, ParquetFiles))
    stream, operator = random.choice(streams), random.choice(operators)
    what: Any = random.choice(("rows", "rejected", "late"))
    of_stream = Delivery("of_stream", stream, target("out/of_stream"), what)
    names = [spec.name for spec in operator.columns_of() if not spec.name.startswith("_")]
    offered: Any = random.choice(operator.delivers)
    select = None if offered == "late" else tuple(names)
    return of_stream, Delivery("of_operator", operator, JsonLines("out/of_operator"), offered, select=select)
