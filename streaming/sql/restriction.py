"""A query for some keys alone, restricted as far down as it can be: below its groups and windows.

Spark itself leaves a semi join above an aggregate where the keys are few enough to be broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streaming.sql.affected import is_one_group, opacity, sources_of


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
    found = _deepest(query, {column: column for column in columns})
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


def _deepest(query: exp.Expr, columns: dict[str, str]) -> tuple[exp.Select, dict[str, str]] | None:
    """The innermost select that may be restricted by `columns`, and what they are called there; None where none may."""
    if isinstance(query, exp.Subquery):
        return _deepest(query.this, columns)
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
        inner = _deepest(source, {column: values[name].name for column, name in columns.items()})
        if inner is not None:
            return inner
    return query, columns


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _outputs(query: exp.Expr) -> list[str]:
    return [each.alias for each in query.expressions] if isinstance(query, exp.Select) else _outputs(query.this)
