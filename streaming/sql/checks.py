"""Checks of a query in its plain form: its rows can be replaced key by key, and changed rows tell which."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streaming.sql.affected import Rewriting, conjuncts, negation_of, reads_others, sources_of, subqueries_of
from streaming.sql.parsing import refuse

_OPAQUE = {
    "aggregate": (
        "is made of several rows, so a change of one of them moves the others",
        "Make the inner query a view of its own, and read that; or leave it out of the key.",
    ),
    "window": (
        "is made of several rows, so a change of one of them moves the others",
        "Make the inner query a view of its own, and read that; or leave it out of the key.",
    ),
    "limit": (
        "is one of the rows that a limit leaves, so a change of one row moves the others",
        "Take the key (); or number the rows of each key, row_number() over (partition by the key order by ...), in a "
        "subquery, and keep those up to the limit in `where`.",
    ),
    "subquery": ("is the value of a subquery", "Join the relation instead."),
    "partition": (
        "is in no `partition by` of a window function beside it, which so looks beyond one key",
        "Partition by the whole key, or take a key that each window is partitioned by.",
    ),
}


def check_key(query: exp.Query, key: Sequence[str]) -> None:
    """Refuse a key that does not follow from single rows.

    Raises:
        BadQuery: the key is made of several rows, or a window function looks beyond it.
    """
    relations = {table.name for table in query.find_all(exp.Table)}
    rewriting = Rewriting(relations, exp.to_table, exp.to_table)
    for place in list(rewriting.places(query)):
        for rows in rewriting.rows(query, place):
            for name in key:
                reason = rows.opaque.get(name)
                if reason:
                    refuse(f"key {reason}", f"is a key that {_OPAQUE[reason][0]}", _OPAQUE[reason][1], exp.column(name))


def check_subqueries(query: exp.Query) -> None:
    """Refuse subqueries of which nothing tells for which rows they are.

    Raises:
        BadQuery: the fragment is the subquery.
    """
    for select in query.find_all(exp.Select):
        for holder in subqueries_of(select):
            _check_subquery(holder, select)


def _check_subquery(holder: exp.Expr, outer: exp.Select) -> None:
    is_in = isinstance(holder, exp.In)
    inner = holder.args["query"].this if is_in else holder.this
    if is_in and not _is_asked(negation_of(holder) or holder):
        refuse("in", "may be null, which only a condition in `where` does not tell", "Write exists (...).", holder)
    aliases = {source.alias for source in sources_of(inner)}
    around = {source.alias for source in sources_of(outer)}
    below = {source.alias for each in inner.find_all(exp.Select) for source in sources_of(each)}
    read = [column for column in inner.find_all(exp.Column) if column.table not in below]
    for column in read:
        if column.table not in around:
            refuse("nested", "is of a query further out", "Read it in the subquery between them, or join.", column)
    where = inner.args.get("where")
    conditions = conjuncts(where.this if where else None)
    for each in subqueries_of(inner):
        condition = next((one for one in conditions if any(node is each for node in one.walk())), None)
        if condition is None or reads_others(condition, aliases):
            refuse("nested", "is a subquery within a subquery, beside its own condition", "Join one of them.", each)


def _is_asked(holder: exp.Expr) -> bool:
    """True where a condition is asked in `where`, so that null is as good as false."""
    parent = holder.parent
    while isinstance(parent, (exp.Paren, exp.And, exp.Or)):
        parent = parent.parent
    return isinstance(parent, exp.Where)
