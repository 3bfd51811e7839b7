"""A query for some keys alone, restricted as far down as it can be: below its groups and windows.

Spark itself leaves a semi join above an aggregate where the keys are few enough to be broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from streaming.sql.affected import Place, conjuncts, is_one_group, opacity, sources_of
from streaming.sql.distances import equal_columns


@dataclass(frozen=True)
class KeyedPlace:
    """A place of a query where it needs only those rows of a relation that have values of the keys it is asked for."""

    relation: str
    keyed: Mapping[str, str]
    """Columns of the relation, each with the column of the key whose values it has there where both are of one type."""
    columns: tuple[str, ...]
    """The columns of the relation that the query reads there."""
    is_only: bool
    """The query reads the relation nowhere else."""


def keyed_places(query: exp.Expr, columns: Sequence[str]) -> dict[Place, KeyedPlace]:
    """The places of a query in its plain form that `restricted_to` restricts by some of these columns of the query.

    The values are those that are projected, and those that a join asks to be equal to one that is. What is equal to
    these in turn may have another value, as '1' = 1 and 1 = '01'. A row that an outer join has where no partner is
    needs the others to stay, so no place on the side that may be missing is among them.
    """
    found = innermost(query, {column: column for column in columns})
    if found is None:
        return {}
    select, names = found
    sources, joins = sources_of(select), select.args.get("joins") or []
    if any(join.side in ("FULL", "RIGHT") for join in joins):
        return {}
    inner = [join for join in joins if not join.side and join.kind in ("", "INNER", "CROSS")]
    certain = [sources[0], *(join.this for join in inner)]
    relations = {each.alias: each.name for each in certain if isinstance(each, exp.Table)}
    projected = {each.alias: each.this.unnest() for each in select.expressions}
    keyed: dict[tuple[str, str], str] = {}
    for column, name in names.items():
        value = projected[name]
        if isinstance(value, exp.Column):
            keyed.setdefault((value.table, value.name), column)
    shown = dict(keyed)
    where = select.args.get("where")
    asked = [*(join.args.get("on") for join in inner), where and where.this]
    for one, other in [*equal_columns([each for condition in asked for each in conjuncts(condition)])]:
        if one in shown:
            keyed.setdefault(other, shown[one])
    everywhere = [table.name for table in query.find_all(exp.Table)]
    places = {}
    for alias, relation in relations.items():
        own = {name: column for (table, name), column in keyed.items() if table == alias}
        if own:
            places[alias] = KeyedPlace(relation, own, columns_read(query, alias), everywhere.count(relation) == 1)
    return places


def restricted_to(query: exp.Expr, columns: Sequence[str], keys: exp.Table, *, have_nulls: bool = True) -> exp.Expr:
    """A query in its plain form with those of its rows alone whose `columns` are those of a row of `keys`.

    Args:
        query: It is changed.
        columns: Some of its columns, which have the same names in `keys`.
        keys: The table of the keys; it is given an alias.
        have_nulls: Values of the keys may be null; where none is, Spark hashes a number by itself.
    """
    taken = {node.alias.lower() for node in query.find_all(exp.Table, exp.Subquery)}
    alias, number = "keys", 2
    while alias in taken:
        alias, number = f"keys {number}", number + 1
    keys.set("alias", _alias(alias))
    found = innermost(query, {column: column for column in columns})
    if found is None:
        select = exp.Select(
            expressions=[exp.column(name, "result", quoted=True) for name in _outputs(query)],
            from_=exp.From(this=exp.Subquery(this=query, alias=_alias("result"))),
        )
        values: dict[str, exp.Expr] = {column: exp.column(column, "result", quoted=True) for column in columns}
        query = select
    else:
        select, names = found
        projected = {each.alias: each.this for each in select.expressions}
        values = {column: exp.Paren(this=projected[name].copy()) for column, name in names.items()}
    equal = exp.NullSafeEQ if have_nulls else exp.EQ
    same = [equal(this=values[column], expression=exp.column(column, alias, quoted=True)) for column in columns]
    join = exp.Join(this=keys, side="LEFT", kind="SEMI", on=exp.and_(*same) if same else exp.true())
    select.append("joins", join)
    return query


def innermost(query: exp.Expr, columns: dict[str, str]) -> tuple[exp.Select, dict[str, str]] | None:
    """The innermost select that may be restricted by `columns`, and what they are called there; None where none may."""
    if isinstance(query, exp.Subquery):
        return innermost(query.this, columns)
    # The sides of a set operation may have other types than their rows have together.
    if not isinstance(query, exp.Select) or is_one_group(query) or not query.args.get("from_"):
        return None
    values = {each.alias: each.this for each in query.expressions}
    read = [values[name] for name in columns.values()]
    if any(opacity(value, {}, query, of_projection=True) for value in read):
        return None
    source = sources_of(query)[0]
    sides = {join.side for join in query.args.get("joins") or ()}
    is_of_first = all(isinstance(value, exp.Column) and value.table == source.alias for value in read)
    if read and is_of_first and isinstance(source, exp.Subquery) and not sides & {"FULL", "RIGHT"}:
        inner = innermost(source, {column: values[name].name for column, name in columns.items()})
        if inner is not None:
            return inner
    return query, columns


def columns_read(query: exp.Expr, place: Place) -> tuple[str, ...]:
    """The columns of the relation in a place that a query in its plain form reads there."""
    return tuple({each.name: None for each in query.find_all(exp.Column) if each.table == place})


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _outputs(query: exp.Expr) -> list[str]:
    return [each.alias for each in query.expressions] if isinstance(query, exp.Select) else _outputs(query.this)
