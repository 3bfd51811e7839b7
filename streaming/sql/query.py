"""A query over named relations: whole, for some keys, and for the keys that changed rows may touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from sqlglot import exp

from streaming.base import BadQuery, FrozenMapping, clock_word, is_known_time
from streaming.sql.affected import Place, Rewriting
from streaming.sql.checks import check_key, check_subqueries
from streaming.sql.distances import Distance, Equality, distances, equalities
from streaming.sql.parsing import refuse_clock, text_of
from streaming.sql.resolution import Relation, parsed_name, resolved
from streaming.sql.restriction import KeyedPlace, columns_read, innermost, keyed_places, restricted_to

_Bound = TypeVar("_Bound", bound=Distance | Equality)

_Origin = tuple[str, str]
"""A relation and one of its columns."""

GLOBAL = "touched"
"""The only column, of the value 1, of the affected keys of a query whose key is ()."""


@dataclass(frozen=True)
class Query:
    """A query in Spark's SQL over named relations, analysed; `Query.of` makes one.

    The key is the unit of replacement: the rows of a key are replaced together, and there may be many of one key.
    """

    sql: str
    columns: tuple[str, ...]
    """The columns of the result, in their order."""
    relations: tuple[str, ...]
    """The relations that it reads, each once, by the names that `of` was given."""
    key: tuple[str, ...]
    """The columns of the key as they are written in `columns`; () is one key for all rows."""
    lineage: Mapping[str, tuple[tuple[str, str], ...]]
    """The columns of relations that each column of the result is computed from, as (relation, column)."""
    times: frozenset[str]
    """The columns of the result that are known to be dates or timestamps."""
    _tree: exp.Query = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        sql: str,
        relations: Mapping[str, Sequence[str]],
        key: Sequence[str],
        deterministic: Collection[str] = (),
        histories: Mapping[str, tuple[str, str]] | None = None,
        times: Mapping[str, Collection[str]] | None = None,
    ) -> Query:
        """Analyse a query.

        Args:
            sql: One `select`, or several with set operations between them, in Spark's SQL.
            relations: The columns of each relation, by the name that `from` says.
            key: Columns of the result; () where all rows are replaced together.
            deterministic: Functions of users that give the same for the same values each time.
            histories: Those relations that are histories, with the columns of the bounds of their intervals: behind
                their name in a join `for time of ...` may stand.
            times: The columns of relations that are known to be dates or timestamps, by the name of the relation.

        Raises:
            BadQuery: it cannot be read, or not be kept right by its key; `reason` says why, `value` is the fragment.
        """
        try:
            return cls._analysed(sql, relations, tuple(key), deterministic, histories or {}, times or {})
        except RecursionError:
            raise BadQuery(
                "the query is nested too deeply", "Make inner queries views of their own.", reason="syntax", value=sql
            ) from None

    @classmethod
    def _analysed(
        cls,
        sql: str,
        relations: Mapping[str, Sequence[str]],
        key: tuple[str, ...],
        deterministic: Collection[str],
        histories: Mapping[str, tuple[str, str]],
        times: Mapping[str, Collection[str]],
    ) -> Query:
        known = tuple(Relation(name, tuple(columns)) for name, columns in relations.items())
        tree, columns = resolved(sql, known, frozenset(map(str.lower, deterministic)), histories)
        check_subqueries(tree)
        is_time = _times_among(tree, times)
        if (word := clock_word(tree, is_time)) is not None:
            refuse_clock(word.parent or word)
        names = {column.lower(): column for column in columns}
        for each in key:
            if each.lower() not in names:
                raise BadQuery(
                    f"the key {each!r} is no column of the result. Columns are: {', '.join(columns)}.",
                    "Select it, or name another.",
                    reason="key",
                    value=each,
                    choices=columns,
                )
        own_key = tuple(names[each.lower()] for each in key)
        if len({*own_key}) < len(own_key):
            raise BadQuery(f"the key {key!r} names a column twice", "Name each once.", reason="key", value=key)
        check_key(tree, own_key)
        read = dict.fromkeys(table.name for table in tree.find_all(exp.Table))
        told = frozenset(name for name in columns if is_known_time(_value_of(tree, name), is_time))
        return cls(sql, columns, tuple(read), own_key, FrozenMapping(_lineage_of(tree)), told, tree)

    def text(self, now: Callable[[str], str]) -> str:
        """The whole query.

        Args:
            now: The name of the table or view that has the rows of a relation that stand, as Spark's SQL writes it.
        """
        return text_of(self._over(now))

    def affected(self, changed: Collection[str], changes: Callable[[str], str], ever: Callable[[str], str]) -> str:
        """A query for the keys that changed rows may touch, each once; for the key () one row of `GLOBAL` if any.

        Args:
            changed: The relations of which rows were added or taken back.
            changes: The name of the table or view of these rows.
            ever: The name of the table or view of the rows that stand and those that were taken back. It is also asked
                for relations that have not changed.
        """
        rewriting = Rewriting(
            frozenset(changed), lambda name: parsed_name(changes(name)), lambda name: parsed_name(ever(name))
        )
        places = list(rewriting.places(self._tree))
        parts = [self._keys_of(rows.query) for place in places for rows in rewriting.rows(self._tree, place)]
        if not parts:
            parts = [self._keys_of(self._over(ever), exp.false())]
        names = self.key or (GLOBAL,)
        keys = exp.Select(
            expressions=[exp.column(name, "keys", quoted=True) for name in names],
            from_=exp.From(this=_derived(_union_of(parts), "keys")),
            distinct=exp.Distinct(),
        )
        return text_of(keys)

    def reaching(self, relation: str, marked: str, now: Callable[[str], str], keys: str, mark: str) -> str:
        """A query for the marks of all rows of a relation that some keys may depend on, each once.

        Rows that it leaves out can be taken away together, and the rows of these keys stay as they are.

        Args:
            relation: One of the relations that it reads.
            marked: The name of the table or view of its rows that stand, each with its mark.
            now: The name of the table or view of the rows of a relation that stand.
            keys: The name of the table or view of the keys, with the columns that `affected` gives.
            mark: The column of the marks, which no relation has.
        """
        rewriting = Rewriting(
            frozenset({relation}), lambda _: parsed_name(marked), lambda name: parsed_name(now(name)), mark
        )
        places = list(rewriting.places(self._tree))
        parts = [self._keys_of(rows.query, mark=mark) for place in places for rows in rewriting.rows(self._tree, place)]
        wanted = parsed_name(keys)
        wanted.set("alias", exp.TableAlias(this=exp.to_identifier("wanted", quoted=True)))
        names = self.key or (GLOBAL,)
        same = [
            exp.NullSafeEQ(
                this=exp.column(name, "keys", quoted=True), expression=exp.column(name, "wanted", quoted=True)
            )
            for name in names
        ]
        return text_of(
            exp.Select(
                expressions=[exp.column(mark, "keys", quoted=True)],
                from_=exp.From(this=_derived(_union_of(parts), "keys")),
                joins=[exp.Join(this=wanted, side="LEFT", kind="SEMI", on=exp.and_(*same))],
                distinct=exp.Distinct(),
            )
        )

    @cached_property
    def keyed_places(self) -> Mapping[Place, KeyedPlace]:
        """The places in which rows of a relation are needed for some keys alone that have values of these keys."""
        return keyed_places(self._tree, self.key)

    @cached_property
    def places(self) -> Mapping[Place, str]:
        """The relation that is read in each place."""
        return {table.alias: table.name for table in self._tree.find_all(exp.Table)}

    def distances(self, is_asked: Callable[[str, str], bool], at: Place | None = None) -> list[Distance]:
        """The distances between columns of places whose rows some keys need, or those that rows `at` a place are in.

        Args:
            is_asked: True for a relation and a column of it whose values are compared as they are.
            at: The place of rows that were added or taken back.
        """
        return [] if self._restrictable is None else distances(self._restrictable, at, is_asked)

    def distances_of_changes(
        self, changed: Collection[str], is_asked: Callable[[str, str], bool]
    ) -> Mapping[str, Sequence[Sequence[Distance]]]:
        """The distances, of the rows of a relation that `affected` reads, from the rows that changed in each place.

        Args:
            changed: The relations of which rows were added or taken back.
            is_asked: As in `distances`.

        Returns:
            For each place with changed rows some distances, each of which bounds what is needed for these; relations
            that are read in several places, or without bounds for one of those, are not among them.
        """
        return self._from_changes(changed, lambda at: self.distances(is_asked, at))

    def equalities_of_changes(self, changed: Collection[str]) -> Mapping[str, Sequence[Sequence[Equality]]]:
        """The columns of relations that `affected` reads which must equal one of the rows that changed in each place.

        Returns:
            For each place with changed rows some equalities, of the relations that `distances_of_changes` tells of.
        """
        select = self._restrictable
        return {} if select is None else self._from_changes(changed, lambda at: equalities(select, at))

    @cached_property
    def _restrictable(self) -> exp.Select | None:
        """The innermost select that may be restricted to some keys; None where none may."""
        found = innermost(self._tree, {column: column for column in self.key}) if self.key else None
        return None if found is None else found[0]

    def _from_changes(
        self, changed: Collection[str], bounds_from: Callable[[Place], Sequence[_Bound]]
    ) -> Mapping[str, Sequence[Sequence[_Bound]]]:
        """The bounds from the rows that changed in each place, of relations that are read in one place alone."""
        places, found = self.places, dict[str, list[list[_Bound]]]()
        beside = {at: bounds_from(at) for at, name in places.items() if name in changed}
        for place, relation in places.items():
            told = [
                [each for each in bounds if (each.place, each.of_place) == (place, at)]
                for at, bounds in beside.items()
                if at != place
            ]
            if told and all(told) and [*places.values()].count(relation) == 1:
                found[relation] = told
        return found

    def columns_read(self, place: Place) -> tuple[str, ...]:
        """The columns of the relation in a place that the query reads there."""
        return columns_read(self._tree, place)

    def plain_key(self, relation: str) -> Mapping[str, str]:
        """The columns of a relation that have the key of whatever a row of it is in, by the columns of the key.

        None of them where the query reads it in several places, or a row of it alone does not tell the whole key.
        """
        places = (each for each in self.keyed_places.values() if each.relation == relation and each.is_only)
        columns = {column: name for each in places for name, column in each.keyed.items()}
        return columns if columns.keys() == {*self.key} else {}

    def restricted(
        self,
        now: Callable[[str], str],
        keys: str,
        *,
        have_nulls: bool = True,
        near: Mapping[Place, str] | None = None,
    ) -> str:
        """The query for some keys alone, which are asked for below its groups and windows where that can be.

        Args:
            now: The name of the table or view of the rows of a relation that stand, as Spark's SQL writes it.
            keys: The name of the table or view of the keys, with the columns that `affected` gives; "" where the rows
                in a place of `near` are those with whole keys, so that nobody has to ask for these again.
            have_nulls: Values of the keys may be null; where none is, the query costs less.
            near: The names of tables or views with the rows that the keys need, at some of the places.
        """
        query = self._over(now, near or {})
        return text_of(restricted_to(query, self.key, parsed_name(keys), have_nulls=have_nulls) if keys else query)

    def _over(self, table: Callable[[str], str], near: Mapping[Place, str] | None = None) -> exp.Expr:
        """The query over other tables: those of their relations, and those `near` some places."""

        def other(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table):
                return node
            made = parsed_name((near or {}).get(node.alias) or table(node.name))
            made.set("alias", node.args["alias"].copy())
            return made

        return self._tree.transform(other)

    def _keys_of(self, query: exp.Expr, condition: exp.Expr | None = None, mark: str = "") -> exp.Select:
        if isinstance(query, exp.Select) and condition is None:
            values = {each.alias: each for each in query.expressions}
            marks = [values[mark]] if mark else []
            query.set("expressions", [*([values[name] for name in self.key] or [_one()]), *marks])
            query.set("distinct", None)
            return query
        names = [exp.alias_(exp.column(name, "rows", quoted=True), name, quoted=True) for name in self.key]
        marks = [exp.alias_(exp.column(mark, "rows", quoted=True), mark, quoted=True)] if mark else []
        return exp.Select(
            expressions=[*(names or [_one()]), *marks],
            from_=exp.From(this=_derived(query, "rows")),
            where=None if condition is None else exp.Where(this=condition),
        )


def _one() -> exp.Expr:
    return exp.alias_(exp.Literal.number(1), GLOBAL, quoted=True)


def _derived(query: exp.Expr, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _union_of(queries: Sequence[exp.Query]) -> exp.Query:
    union, *others = queries
    for query in others:
        union = exp.Union(this=union, expression=query, distinct=False)
    return union


def _sources_of(query: exp.Expr) -> dict[str, exp.Expr]:
    """The tables and subqueries of a query in its plain form, by their aliases."""
    return {source.alias: source for source in query.find_all(exp.Table, exp.Subquery) if source.alias}


def _times_among(query: exp.Expr, times: Mapping[str, Collection[str]]) -> Callable[[exp.Column], bool]:
    """A function that tells of a column of a query in its plain form that it is known to be a date or a timestamp."""
    sources = _sources_of(query)

    def is_time(column: exp.Column) -> bool:
        source = sources.get(column.table)
        if isinstance(source, exp.Table):
            return column.name in times.get(source.name, ())
        # A parameter of a function of elements is of no source.
        return source is not None and is_known_time(_value_of(source, column.name), is_time)

    return is_time


def _value_of(query: exp.Expr, name: str) -> exp.Expr:
    """The expression of a column of a query in its plain form; of several selects that of the first."""
    while not isinstance(query, exp.Select):
        query = query.this
    return next(each.this for each in query.expressions if each.alias == name)


def _lineage_of(query: exp.Expr) -> dict[str, tuple[_Origin, ...]]:
    """The origins of each column of a query in its plain form, by their names; conditions and joins add none."""
    sources = _sources_of(query)
    return {name: tuple(dict.fromkeys(origins)) for name, origins in _origins_of_query(query, sources).items()}


def _origins_of_query(query: exp.Expr, sources: dict[str, exp.Expr]) -> dict[str, list[_Origin]]:
    if isinstance(query, exp.Subquery):
        return _origins_of_query(query.this, sources)
    if isinstance(query, exp.SetOperation):
        sides = _origins_of_query(query.this, sources), _origins_of_query(query.expression, sources)
        return {name: [*origins, *sides[1][name]] for name, origins in sides[0].items()}
    return {each.alias: list(_origins_of_value(each.this, sources)) for each in query.expressions}


def _origins_of_value(node: exp.Expr, sources: dict[str, exp.Expr]) -> Iterator[_Origin]:
    if isinstance(node, exp.Column):
        source = sources[node.table]
        if isinstance(source, exp.Table):
            yield source.name, node.name
        else:
            yield from _origins_of_query(source, sources)[node.name]
    elif isinstance(node, exp.Query):
        for origins in _origins_of_query(node, sources).values():
            yield from origins
    else:
        for each in node.iter_expressions():
            yield from _origins_of_value(each, sources)
