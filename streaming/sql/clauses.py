"""Clauses of a select: which nodes may stand in an expression of one, and which columns beside a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from streaming.sql.parsing import QuerySpark, is_aggregate, refuse


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, those within its subqueries left out."""
    yield node
    if not isinstance(node, exp.Query) or isinstance(node, exp.Subquery):
        for each in node.iter_expressions():
            if not isinstance(each, exp.Query) or isinstance(each, exp.Subquery):
                yield from own_nodes(each)
            else:
                yield each


def has(node: exp.Expr, is_one: Callable[[exp.Expr], bool]) -> bool:
    """True where a value has a node of a kind, those within its subqueries left out."""
    return any(is_one(each) for each in own_nodes(node))


def is_query(node: exp.Expr) -> bool:
    """True for a query within an expression."""
    return isinstance(node, exp.Query)


def is_window(node: exp.Expr) -> bool:
    """True for a window function."""
    return isinstance(node, exp.Window)


def refuse_where(node: exp.Expr, is_one: Callable[[exp.Expr], bool], clause: str, way_out: str) -> None:
    """Refuse an expression of a clause that has a node of a kind.

    Raises:
        BadQuery: the fragment is that node.
    """
    for each in own_nodes(node):
        if is_one(each):
            refuse("clause", f"cannot stand in `{clause}`", way_out, each)


def check_groups(select: exp.Select, aliases: set[str]) -> None:
    """Refuse a column that is neither grouped nor aggregated, which Spark would refuse in the step."""
    having = select.args.get("having")
    groups = {each.sql(QuerySpark) for each in (select.args["group"].expressions if select.args.get("group") else ())}
    values = [each.unalias() for each in select.expressions] + ([having.this] if having else [])
    if not groups and not any(has(value, is_aggregate) for value in values):
        if having is not None:
            refuse("having", "has nothing to be about", "Write the condition in `where`.", having)
        return

    def check(node: exp.Expr) -> None:
        filtered = node.this if isinstance(node, (exp.Filter, exp.WithinGroup)) else node
        if is_aggregate(filtered) or node.sql(QuerySpark) in groups:
            return
        if isinstance(node, exp.Column) and node.table in aliases:
            refuse(
                "ungrouped",
                "is neither in `group by` nor within an aggregate",
                "Add it to `group by`, or aggregate it.",
                node,
            )
        for each in node.iter_expressions():
            check(each)

    for value in values:
        check(value)
