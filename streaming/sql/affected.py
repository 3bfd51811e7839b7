"""The keys that changed rows may touch: a query for each place in which a changed relation is read.

In such a query that place has the changed rows, and each other place the rows that are there now or were before. What
it gives are rows that the query has or had, of which only those columns are known that follow from single rows; a
column that is made of several rows is *opaque*, and no condition on it is asked. So it gives too many keys at times,
and never too few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from streaming.sql.clauses import own_nodes
from streaming.sql.parsing import QuerySpark, is_aggregate

_GHOST = "is ghost"
Place = str
"""The alias of a relation in the tree, which nothing else there has."""


@dataclass(frozen=True)
class Rows:
    """A query for rows that there are or were, and why some of its columns are opaque, by their names."""

    query: exp.Expr
    opaque: Mapping[str, str]


@dataclass(frozen=True)
class Rewriting:
    """Rewriting of a query in its plain form, whose relations `changed` have changed rows."""

    changed: Collection[str]
    changes: Callable[[str], exp.Table]
    """The table of the rows of a relation that were added or taken back."""
    ever: Callable[[str], exp.Table]
    """The table of the rows of a relation that are there, or were before."""
    mark: str = ""
    """The column by which a changed row is known, and which the rows that it is in have then, too; "" for none."""

    def places(self, node: exp.Expr) -> Iterator[Place]:
        """The places in which a changed relation is read."""
        return (table.alias for table in node.find_all(exp.Table) if table.name in self.changed)

    def rows(self, query: exp.Expr, place: Place) -> list[Rows]:
        """The rows that those changed at a place are in."""
        if isinstance(query, exp.Subquery):
            return self.rows(query.this, place)
        if isinstance(query, exp.SetOperation):
            side = query.this if _is_in(place, query.this) else query.expression
            return [self._typed(rows, query) for rows in self.rows(side, place)]
        assert isinstance(query, exp.Select)
        sources = sources_of(query)
        at = next((number for number, source in enumerate(sources) if _is_in(place, source)), None)
        if at is None:
            return self._of_subquery(query, place)
        source = sources[at]
        if isinstance(source, exp.Table):
            return [self._select(query, at, Rows(self._table(source, self.changes), {}))]
        return [self._select(query, at, rows) for rows in self.rows(source.this, place)]

    def relaxed(self, query: exp.Expr) -> Rows:
        """Every row that a query has in whatever state between before and now its relations are."""
        if not any(self.places(query)):
            return Rows(self.stable(query), {})
        if isinstance(query, exp.Subquery):
            return self.relaxed(query.this)
        if isinstance(query, exp.Union):
            left, right = self.relaxed(query.this), self.relaxed(query.expression)
            both = exp.Union(this=_in_brackets(left.query), expression=_in_brackets(right.query), distinct=False)
            return Rows(both, {**left.opaque, **right.opaque})
        if isinstance(query, exp.SetOperation):
            # Whatever the right side has, it adds no row.
            return self._typed(self.relaxed(query.this), query)
        assert isinstance(query, exp.Select)
        if is_one_group(query):
            opaque = {each.alias: "aggregate" for each in query.expressions if opacity(each.this, {}, query)}
            values = [
                exp.alias_(exp.null() if each.alias in opaque else each.this.copy(), each.alias, quoted=True)
                for each in query.expressions
            ]
            return Rows(exp.Select(expressions=values), opaque)
        return self._select(query, None, None)

    def stable(self, node: exp.Expr) -> exp.Expr:
        """A copy of a part of the query that reads no changed relation, or of which only the types count."""
        return node.transform(lambda each: self._table(each, self.ever) if isinstance(each, exp.Table) else each)

    @staticmethod
    def _table(table: exp.Table, rows: Callable[[str], exp.Table]) -> exp.Table:
        made = rows(table.name)
        made.set("alias", table.args["alias"].copy())
        return made

    def _typed(self, rows: Rows, query: exp.SetOperation) -> Rows:
        """Rows of one side with the types that both sides have together."""
        names = _outputs(query)
        is_marked = bool(self.mark) and self.mark in _outputs(rows.query)
        marks = [exp.alias_(exp.null(), self.mark, quoted=True)] if is_marked else []
        none = exp.Select(
            expressions=[*(_column("both", name) for name in names), *marks],
            from_=exp.From(this=exp.Subquery(this=self.stable(query), alias=_alias("both"))),
            where=exp.Where(this=exp.false()),
        )
        some = exp.Select(
            expressions=[_column("one", name) for name in (*names, *([self.mark] if is_marked else []))],
            from_=exp.From(this=exp.Subquery(this=rows.query, alias=_alias("one"))),
        )
        both = exp.Union(this=_in_brackets(none), expression=_in_brackets(some), distinct=False)
        return Rows(both, rows.opaque)

    def _select(self, query: exp.Select, at: int | None, rows: Rows | None) -> Rows:
        """The rows of a select whose source `at` has those `rows`, or of which no source is special."""
        sources, joins = sources_of(query), query.args.get("joins") or []
        used = [self._source(source, rows if number == at else None) for number, source in enumerate(sources)]
        moves = [number == at or any(self.places(source)) for number, source in enumerate(sources)]
        opaque = {
            (source.alias, name): reason
            for source, each in zip(sources, used, strict=True)
            for name, reason in each.opaque.items()
        }
        nodes = [each.query for each in used]
        made_joins = []
        for number, join in enumerate(joins, 1):
            conditions = conjuncts(join.args.get("on"))
            asked = [each for each in conditions if not opacity(each, opaque, query)]
            loose = moves[number] or len(asked) < len(conditions)
            side, kind = join.side, join.kind
            if kind == "ANTI":
                if number != at and loose:
                    # Every row may be without a partner.
                    continue
                kind = "SEMI" if number == at else kind
            elif side == "LEFT" and kind != "SEMI":
                if loose:
                    nodes[number] = self._with_ghosts(query, sources[number], nodes[number], number == at)
                    asked = [_of_ghosts(each, sources[number].alias) for each in asked]
                side = "" if number == at else side
            elif side == "FULL":
                if loose:
                    nodes[1] = self._with_ghosts(query, sources[1], nodes[1], at == 1)
                    asked = [_of_ghosts(each, sources[1].alias) for each in asked]
                if moves[0] or len(asked) < len(conditions):
                    nodes[0] = self._with_ghosts(query, sources[0], nodes[0], at == 0)
                    asked = [_of_ghosts(each, sources[0].alias) for each in asked]
                side = {None: "FULL", 0: "LEFT", 1: "RIGHT"}[at]
            if self.mark and number == at and kind in ("SEMI", "ANTI"):
                # The mark of a row is read, so that a partner is not only asked for.
                side, kind = "", ""
            made = exp.Join(this=nodes[number])
            if asked or side or kind in ("SEMI", "ANTI"):
                made.set("on", exp.and_(*asked) if asked else exp.true())
                made.set("side", side or None)
                made.set("kind", kind if kind in ("SEMI", "ANTI") else None)
            else:
                made.set("kind", "CROSS")
            made_joins.append(made)
        made_query = exp.Select()
        if nodes:
            made_query.set("from_", exp.From(this=nodes[0]))
        if made_joins:
            made_query.set("joins", made_joins)
        where = query.args.get("where")
        asked = [
            self.stable(each) for each in conjuncts(where and where.this) if not self._is_loose(each, opaque, query)
        ]
        if asked:
            made_query.set("where", exp.Where(this=exp.and_(*asked)))
        hidden = {}
        for each in query.expressions:
            reason = opacity(each.this, opaque, query, of_projection=True)
            if reason:
                hidden[each.alias] = reason
            made_query.append(
                "expressions", exp.alias_(exp.null() if reason else each.this.copy(), each.alias, quoted=True)
            )
        if self.mark and at is not None:
            made_query.append("expressions", self._marked_by(sources[at].alias))
        if query.args.get("distinct") or query.args.get("group"):
            made_query.set("distinct", exp.Distinct())
        return Rows(made_query, hidden)

    def _marked_by(self, alias: str) -> exp.Expr:
        """The mark of the row that a row is made of."""
        return exp.alias_(_column(alias, self.mark), self.mark, quoted=True)

    def _is_loose(self, condition: exp.Expr, opaque: Mapping[tuple[str, str], str], query: exp.Select) -> bool:
        """True where a condition may change its answer while the rows that it is asked of stay."""
        return any(self.places(condition)) or bool(opacity(condition, opaque, query, with_queries=False))

    def _source(self, source: exp.Expr, rows: Rows | None) -> Rows:
        """A source as it stands in the rewritten query."""
        if rows is not None and isinstance(rows.query, exp.Table):
            return rows
        if isinstance(source, exp.Table):
            return Rows(self._table(source, self.ever), {})
        rows = rows or self.relaxed(source.this)
        return Rows(exp.Subquery(this=rows.query, alias=source.args["alias"].copy()), rows.opaque)

    def _with_ghosts(self, query: exp.Select, source: exp.Expr, node: exp.Expr, is_changed: bool) -> exp.Expr:
        """The rows of a source twice: once as they are, and once as the nulls that stand where no partner is.

        The condition of the join reads the columns whose names end with a mark, which both have.
        """
        alias = source.alias
        names = dict.fromkeys(column.name for column in query.find_all(exp.Column) if column.table == alias)
        ghosts = exp.Values(
            expressions=[exp.Tuple(expressions=[exp.Boolean(this=each)]) for each in (False, True)],
            alias=exp.TableAlias(this=_identifier(f"{alias} ghosts"), columns=[_identifier(_GHOST)]),
        )
        is_ghost = _column(f"{alias} ghosts", _GHOST)
        columns = [
            exp.alias_(
                exp.Case(ifs=[exp.If(this=exp.Not(this=is_ghost.copy()), true=_column(alias, name))]), name, quoted=True
            )
            for name in names
        ]
        marked = [exp.alias_(_column(alias, name), _marked(name), quoted=True) for name in names]
        marked += [self._marked_by(alias)] if self.mark and is_changed else []
        twice = exp.Select(
            expressions=[*columns, *marked] or [exp.alias_(is_ghost.copy(), _GHOST, quoted=True)],
            from_=exp.From(this=node),
            joins=[exp.Join(this=ghosts, kind="CROSS")],
        )
        return exp.Subquery(this=twice, alias=_alias(alias))

    def _of_subquery(self, query: exp.Select, place: Place) -> list[Rows]:
        """The rows for which a subquery, of a condition or of a projection, reads rows changed at a place."""
        holder = next(each for each in _subqueries(query) if _is_in(place, each))
        base = self._select(query, None, None)
        inner = (holder.args["query"].this if isinstance(holder, exp.In) else holder.this).copy()
        aliases = {source.alias for source in sources_of(inner)}
        where = inner.args.get("where")
        conditions = conjuncts(where and where.this)
        correlated = [each for each in conditions if reads_others(each, aliases)]
        own = [each for each in conditions if not reads_others(each, aliases)]
        if isinstance(holder, exp.In) and not is_limited(inner):
            correlated += _equalities(holder, inner)
        # The rows of the subquery are those of its relations, whatever is made of them.
        read = {
            (column.table, column.name): None
            for each in correlated
            for column in each.find_all(exp.Column)
            if column.table in aliases
        }
        for clause in ("group", "having", "distinct", "order", "limit", "offset"):
            inner.set(clause, None)
        inner.set("where", exp.Where(this=exp.and_(*own)) if own else None)
        names = {pair: f"{pair[0]} {pair[1]}" for pair in read}
        inner.set(
            "expressions",
            [exp.alias_(_column(*pair), name, quoted=True) for pair, name in names.items()]
            or [exp.alias_(exp.Literal.number(1), "one", quoted=True)],
        )
        alias = f"{place} rows"
        return [self._joined(query, base, rows, correlated, names, alias) for rows in self.rows(inner, place)]

    def _joined(
        self,
        query: exp.Select,
        base: Rows,
        rows: Rows,
        correlated: Iterable[exp.Expr],
        names: Mapping[tuple[str, str], str],
        alias: str,
    ) -> Rows:
        """The rows of `base` that have a partner among those of a subquery."""
        opaque = {pair: rows.opaque[name] for pair, name in names.items() if name in rows.opaque}
        for source in sources_of(query):
            if not isinstance(source, exp.Table):
                relaxed = self.relaxed(source.this)
                opaque.update({(source.alias, name): reason for name, reason in relaxed.opaque.items()})

        def outside(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and (node.table, node.name) in names:
                return _column(alias, names[node.table, node.name])
            return node

        asked = [
            self.stable(each).transform(outside)
            for each in correlated
            if not self._is_loose(each, opaque, query) and not any(map(is_aggregate, each.walk()))
        ]
        made = base.query.copy()
        semi = exp.Join(
            this=exp.Subquery(this=rows.query, alias=_alias(alias)),
            side="" if self.mark else "LEFT",
            kind="" if self.mark else "SEMI",
            on=exp.and_(*asked) if asked else exp.true(),
        )
        made.append("joins", semi)
        if self.mark:
            made.append("expressions", self._marked_by(alias))
        return Rows(made, base.opaque)


def subqueries_of(query: exp.Select) -> list[exp.Expr]:
    """The subqueries in conditions and projections of a select; those in `from`, and those within them, left out."""
    return list(_subqueries(query))


def _subqueries(query: exp.Select) -> Iterator[exp.Expr]:
    clauses = [query.args[name] for name in ("where", "having") if query.args.get(name)]
    for clause in [*clauses, *query.expressions]:
        yield from _subqueries_in(clause)


def _subqueries_in(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, (exp.Exists, exp.Subquery)) or (isinstance(node, exp.In) and node.args.get("query")):
        yield node
        if isinstance(node, exp.In):
            yield from _subqueries_in(node.this)
        return
    for each in node.iter_expressions():
        yield from _subqueries_in(each)


def _equalities(holder: exp.In, inner: exp.Select) -> list[exp.Expr]:
    """The conditions under which a row of a subquery has a say in what `in`, or `not in`, tells of another row."""
    values = holder.this.expressions if isinstance(holder.this, exp.Tuple) else [holder.this]
    pairs = zip(values, (each.this for each in inner.expressions), strict=True)
    is_same = _is_not_another if negation_of(holder) else _is_equal
    return [
        is_same(exp.Paren(this=value.copy()), exp.Paren(this=other.copy()))
        for value, other in pairs
        if not any(isinstance(each, exp.Window) or is_aggregate(each) for each in other.walk())
        and not other.find(exp.Query)
        and not value.find(exp.Query)
    ]


def _is_equal(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.EQ(this=one, expression=other)


def _is_not_another(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    # A null on either side may be any value, so that `not in` is not true.
    nulls = (exp.Is(this=each.copy(), expression=exp.null()) for each in (one, other))
    return exp.or_(_is_equal(one, other), *nulls, wrap=False)


def negation_of(holder: exp.Expr) -> exp.Not | None:
    """The `not` of a `not in`; None where there is none."""
    parent = holder.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent if isinstance(parent, exp.Not) else None


def reads_others(node: exp.Expr, aliases: set[str]) -> bool:
    """True where a condition reads columns of other relations than those of these aliases, or of its own subqueries."""
    inner = aliases | {table.alias for query in node.find_all(exp.Select) for table in sources_of(query)}
    return any(column.table not in inner for column in node.find_all(exp.Column))


def opacity(
    node: exp.Expr,
    opaque: Mapping[tuple[str, str], str],
    query: exp.Select,
    of_projection: bool = False,
    with_queries: bool = True,
) -> str:
    """The reason why a value does not follow from one row; "" where it does."""
    for each in own_nodes(node):
        if isinstance(each, exp.Window):
            return "window"
        if is_aggregate(each):
            return "aggregate"
        if with_queries and isinstance(each, exp.Query):
            return "subquery"
    for column in node.find_all(exp.Column):
        if (column.table, column.name) in opaque:
            return opaque[column.table, column.name]
    if of_projection and is_limited(query):
        return "limit"
    if of_projection:
        shared = _partitions(query)
        if shared is not None and _reads_beyond(node, shared):
            return "partition"
    return ""


def _partitions(query: exp.Select) -> set[str] | None:
    """The expressions by which every window function of a select is partitioned; None where it has none."""
    windows = [each for value in query.expressions for each in own_nodes(value) if isinstance(each, exp.Window)]
    if not windows:
        return None
    each_by = [{part.sql(QuerySpark) for part in window.args.get("partition_by") or ()} for window in windows]
    return set.intersection(*each_by)


def _reads_beyond(node: exp.Expr, parts: set[str]) -> bool:
    if node.sql(QuerySpark) in parts:
        return False
    return isinstance(node, exp.Column) or any(_reads_beyond(each, parts) for each in node.iter_expressions())


def is_limited(query: exp.Select) -> bool:
    """True where of the rows of a select only some are left, which depends on all of them."""
    return bool(query.args.get("limit") or query.args.get("offset"))


def is_one_group(query: exp.Select) -> bool:
    """True where a select has one row for all of its relations' rows, also where there are none."""
    having = query.args.get("having")
    values = [*query.expressions, *([] if having is None else [having.this])]
    return not query.args.get("group") and any(is_aggregate(each) for value in values for each in own_nodes(value))


def sources_of(query: exp.Select) -> list[exp.Expr]:
    """The relations and subqueries that stand in `from` and behind joins, in its order."""
    from_ = query.args.get("from_")
    return [] if from_ is None else [from_.this, *(join.this for join in query.args.get("joins") or ())]


def _is_in(place: Place, node: exp.Expr) -> bool:
    return any(table.alias == place for table in node.find_all(exp.Table))


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that all must hold where `node` does."""
    if node is None:
        return []
    if isinstance(node, exp.Paren):
        return conjuncts(node.this)
    return [*conjuncts(node.this), *conjuncts(node.expression)] if isinstance(node, exp.And) else [node]


def _outputs(query: exp.Expr) -> list[str]:
    if isinstance(query, exp.Select):
        return [each.alias for each in query.expressions]
    return _outputs(query.this)


def _of_ghosts(node: exp.Expr, alias: str) -> exp.Expr:
    """A condition of a join that reads a row as it is, also where the rest of the query reads it as nulls."""

    def marked(each: exp.Expr) -> exp.Expr:
        return _column(alias, _marked(each.name)) if isinstance(each, exp.Column) and each.table == alias else each

    return node.transform(marked)


def _marked(name: str) -> str:
    return f"{name} as it is"


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=_identifier(name))


def _column(alias: str, name: str) -> exp.Column:
    return exp.Column(this=_identifier(name), table=_identifier(alias))


def _in_brackets(query: exp.Expr) -> exp.Subquery:
    return exp.Subquery(this=query)
