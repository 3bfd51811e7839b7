"""The columns of relations that the columns of a query are computed from."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

Origin = tuple[str, str]
"""A relation and one of its columns."""


def lineage_of(query: exp.Expr) -> dict[str, tuple[Origin, ...]]:
    """The origins of each column of a query in its plain form, by their names; conditions and joins add none."""
    sources: dict[str, exp.Expr] = {
        source.alias: source for source in query.find_all(exp.Table, exp.Subquery) if source.alias
    }
    return {name: tuple(dict.fromkeys(origins)) for name, origins in _of_query(query, sources).items()}


def _of_query(query: exp.Expr, sources: dict[str, exp.Expr]) -> dict[str, list[Origin]]:
    if isinstance(query, exp.Subquery):
        return _of_query(query.this, sources)
    if isinstance(query, exp.SetOperation):
        sides = _of_query(query.this, sources), _of_query(query.expression, sources)
        return {name: [*origins, *sides[1][name]] for name, origins in sides[0].items()}
    return {each.alias: list(_of_value(each.this, sources)) for each in query.expressions}


def _of_value(node: exp.Expr, sources: dict[str, exp.Expr]) -> Iterator[Origin]:
    if isinstance(node, exp.Column):
        source = sources[node.table]
        if isinstance(source, exp.Table):
            yield source.name, node.name
        else:
            yield from _of_query(source, sources)[node.name]
    elif isinstance(node, exp.Query):
        for origins in _of_query(node, sources).values():
            yield from origins
    else:
        for each in node.iter_expressions():
            yield from _of_value(each, sources)
