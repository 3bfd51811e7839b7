"""The distances between values of two places of a query, as its conditions on columns bound them.

Rows of one place that are too far from all rows of another one are in nothing that these are in, and need not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from sqlglot import exp

from streaming.base import MICROSECOND, BadInterval, interval
from streaming.sql.affected import Place, conjuncts, sources_of

_Name = tuple[Place, str]
_Bounds = dict[tuple[_Name, _Name], int]
"""The most that the value of a column is above that of another one, by both."""


@dataclass(frozen=True)
class Distance:
    """Rows in a place are needed only where `column` is at most so far from `of_column` of a row in another place.

    The difference of the two is from `least` to `greatest`, None for no bound: microseconds, or numbers as the query
    has them.
    """

    place: Place
    column: str
    of_place: Place
    of_column: str
    least: int | None
    greatest: int | None


class Equality(NamedTuple):
    """Rows in a place are needed only where `column` equals `of_column` of a row in another place.

    A condition of the query says so, of values of whatever types.
    """

    place: Place
    column: str
    of_place: Place
    of_column: str


def distances(select: exp.Select, at: Place | None, is_asked: Callable[[str, str], bool]) -> list[Distance]:
    """The distances between columns of the relations that a select reads itself.

    Args:
        select: In its plain form.
        at: A place of which the rows are wanted that a row there is in; None where all rows of the select are.
        is_asked: True for a relation and a column of it whose values are compared as they are; others bound nothing.
    """
    read, found = _read_by(select, at), []

    def is_read(name: _Name) -> bool:
        return name[0] in read.relations and is_asked(read.relations[name[0]], name[1])

    for place, conditions in read.conditions.items():
        bounds = _closed({pair: most for pair, most in _bounds(conditions) if all(map(is_read, pair))})
        names = sorted({name for pair in bounds for name in pair})
        for column, other in product(names, names):
            if column[0] == place != other[0] and other[0] in read.certain:
                least, greatest = bounds.get((other, column)), bounds.get((column, other))
                if least is not None or greatest is not None:
                    found.append(Distance(*column, *other, None if least is None else -least, greatest))
    return found


def equalities(select: exp.Select, at: Place) -> list[Equality]:
    """The columns of the relations that a select reads itself which must equal a column of a row at a place.

    What follows from several conditions is not told: '1' = 1 and 1 = '01'.

    Args:
        select: In its plain form.
        at: A place of which the rows are wanted that a row there is in.
    """
    read = _read_by(select, at)
    return [
        Equality(*one, *other)
        for place, conditions in read.conditions.items()
        for one, other in equal_columns(conditions)
        if one[0] == place != other[0] == at
    ]


def equal_columns(conditions: Sequence[exp.Expr]) -> Iterator[tuple[_Name, _Name]]:
    """The pairs of columns that one of the conditions asks to be equal; both ways."""
    for each in conditions:
        if isinstance(each, exp.EQ):
            one, other = each.this.unnest(), each.expression.unnest()
            if isinstance(one, exp.Column) and isinstance(other, exp.Column):
                yield (one.table, one.name), (other.table, other.name)
                yield (other.table, other.name), (one.table, one.name)


class _Read(NamedTuple):
    """The relations that a select reads itself, by place."""

    relations: Mapping[Place, str]
    certain: Collection[Place]
    """The places of which a row is in all that is wanted."""
    conditions: Mapping[Place, list[exp.Expr]]
    """The conditions that all meets which is wanted with a row of a place."""


def _read_by(select: exp.Select, at: Place | None) -> _Read:
    """The relations that a select reads itself; none where it tells nothing. `at` is that of `distances`."""
    sources, joins = sources_of(select), select.args.get("joins") or []
    if not sources or any(join.side in ("FULL", "RIGHT") for join in joins):
        return _Read({}, (), {})
    relations = {each.alias: each.name for each in sources if isinstance(each, exp.Table)}
    is_certain = {
        join.this.alias: join.this.alias == at or (not join.side and join.kind in ("", "INNER", "CROSS"))
        for join in joins
    }
    certain = {sources[0].alias, *(alias for alias, is_one in is_certain.items() if is_one)}
    where = select.args.get("where")
    of_all = conjuncts(where and where.this)
    for join in joins:
        if is_certain[join.this.alias]:
            of_all += conjuncts(join.args.get("on"))
    own = {join.this.alias: conjuncts(join.args.get("on")) for join in joins}
    # A row that may be missing must meet what its own join asks, and what is asked of all.
    conditions = {place: of_all if place in certain else [*of_all, *own[place]] for place in relations}
    return _Read(relations, certain, conditions)


def _bounds(conditions: list[exp.Expr]) -> Iterator[tuple[tuple[_Name, _Name], int]]:
    """The most that one column is above another one by each condition that says so, the least last."""
    told = sorted(((pair, most) for each in conditions for pair, most in _told(each)), key=lambda each: -each[1])
    yield from told


def _told(condition: exp.Expr) -> Iterator[tuple[tuple[_Name, _Name], int]]:
    """The bounds that a condition tells where it is true."""
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        yield from _not_above(condition.args["low"], condition.this)
        yield from _not_above(condition.this, condition.args["high"])
    if isinstance(condition, (exp.LT, exp.LTE, exp.EQ)):
        yield from _not_above(condition.this, condition.expression)
    if isinstance(condition, (exp.GT, exp.GTE, exp.EQ)):
        yield from _not_above(condition.expression, condition.this)


def _not_above(one: exp.Expr, other: exp.Expr) -> Iterator[tuple[tuple[_Name, _Name], int]]:
    left, right = _sum(one), _sum(other)
    if left is not None and right is not None and left[0] != right[0]:
        yield (left[0], right[0]), right[1] - left[1]


def _sum(node: exp.Expr) -> tuple[_Name, int] | None:
    """A column and what is added to it; None for any other value."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return ((node.table, node.name), 0) if node.table else None
    if not isinstance(node, (exp.Add, exp.Sub)):
        return None
    left, right = _sum(node.this), _length(node.expression)
    if left is None and isinstance(node, exp.Add):
        left, right = _sum(node.expression), _length(node.this)
    if left is None or right is None:
        return None
    return left[0], left[1] + (right if isinstance(node, exp.Add) else -right)


def _length(node: exp.Expr) -> int | None:
    """The length of an interval of whole units that are always as long; None for others."""
    node = node.unnest()
    if isinstance(node, exp.Add):
        left, right = _length(node.this), _length(node.expression)
        return None if left is None or right is None else left + right
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
        return int(node.name)
    if not isinstance(node, exp.Interval) or not isinstance(node.args.get("unit"), exp.Var):
        return None
    try:
        return interval(f"{node.name} {node.args['unit'].name}") // MICROSECOND
    except BadInterval:
        return None


def _closed(bounds: _Bounds) -> _Bounds:
    """The bounds with those that follow from several of them."""
    names = sorted({name for pair in bounds for name in pair})
    known = dict(bounds)
    for middle, first, last in product(names, names, names):
        if first != last and (first, middle) in known and (middle, last) in known:
            most = known[first, middle] + known[middle, last]
            known[first, last] = min(most, known.get((first, last), most))
    return known
