"""Names of a query become relations and their columns, by Spark's rules; the tree comes into one plain form.

In that form a relation, or a subquery in `from`, has an alias that nothing else in the tree has; each column names
the alias that it is of; each projection has a name that is there once; CTEs stand where they are read; a right join is
a left one; `using`, stars, positions and names of projections are written out; subqueries are in brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from streaming.base import PARSER_ERRORS, BadQuery
from streaming.sql.clauses import check_groups, has, is_query, is_window, refuse_where
from streaming.sql.parsing import QuerySpark, history_joins, is_aggregate, parsed, refuse

Path = tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """A relation that a query may name, with its columns."""

    name: str
    columns: tuple[str, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The ways in which `from` may spell its name, in lower case: as one name, or with the names that it is in."""
        whole = (self.name.lower(),)
        try:
            table = exp.to_table(self.name, dialect=QuerySpark)
        except PARSER_ERRORS:
            return (whole,)
        parts = tuple(part.name.lower() for part in table.parts)
        return (whole,) if parts == whole else (whole, parts)


@dataclass(frozen=True)
class _Source:
    """A relation or subquery in `from` or behind a join: its node, the names that it goes by, and its columns."""

    node: exp.Expr
    names: frozenset[Path]
    """The names that may stand before one of its columns, in lower case."""
    columns: tuple[tuple[str, str], ...]
    """The name of each column as it is written, and the one that it has in the tree."""

    @property
    def alias(self) -> str:
        return str(self.node.alias)

    def column(self, name: str) -> list[exp.Column]:
        """The columns of a name; more than one where the name is there twice."""
        return [_column(self.alias, own) for written, own in self.columns if written.lower() == name.lower()]


@dataclass
class _Scope:
    """The names that an expression may read: columns of sources, then of the query around it."""

    sources: list[_Source] = field(default_factory=list)
    outer: _Scope | None = None
    merged: dict[str, _Merged] = field(default_factory=dict)
    """Columns that `using` made one of, by their names in lower case."""

    def columns(self, name: str) -> list[exp.Expr]:
        """The columns of a name without a relation before it; more than one where it is ambiguous."""
        merged = self.merged.get(name.lower())
        others = (source for source in self.sources if merged is None or source.alias not in merged.aliases)
        found: list[exp.Expr] = [] if merged is None else [merged.value.copy()]
        return found + [column for source in others for column in source.column(name)]


@dataclass(frozen=True)
class _Merged:
    """A column that `using` made of those of several sources."""

    name: str
    value: exp.Expr
    aliases: frozenset[str]


@dataclass(frozen=True)
class _Cte:
    """A query of a `with`, and those that it may read."""

    query: exp.Expr
    columns: tuple[str, ...]
    others: Mapping[str, _Cte]


Outputs = tuple[tuple[str, str], ...]
"""The columns of a query: each as it is written, and as it is called in the tree."""


def resolved(
    sql: str,
    relations: Sequence[Relation],
    deterministic: frozenset[str],
    histories: Mapping[str, tuple[str, str]],
) -> tuple[exp.Query, tuple[str, ...]]:
    """The tree of a query in its plain form, and the columns of its result.

    Raises:
        BadQuery: it is no query, a name in it is not there, or it has something that is not kept right.
    """
    text, times = history_joins(sql) if isinstance(sql, str) else (sql, {})
    resolver = _Resolver(relations, histories, times)
    tree = parsed(text, deterministic)
    query, outputs = resolver.query(tree, {}, None)
    unused = [path for end, path in times.items() if end not in resolver.times_used]
    if unused:
        (path, *_) = unused
        raise BadQuery(
            f"`for time of {'.'.join(path)}` does not stand behind a history in a join",
            "Write: join customers for time of orders.at on orders.customer = customers.customer.",
            reason="history",
            value=".".join(path),
        )
    for (name, _), each in zip(outputs, _first_select(query).expressions, strict=True):
        if not name:
            refuse("unnamed", "has no name", "Name it: ... as total.", each.this)
    names = [name.lower() for name, _ in outputs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadQuery(
            f"two columns of the result are called {twice!r}",
            "Name one of them: ... as another.",
            reason="twice",
            value=twice,
        )
    return query, tuple(name for name, _ in outputs)


def relations_in(sql: str, deterministic: Collection[str] = ()) -> tuple[str, ...]:
    """The names in `from` of a query that are not those of its own `with`, each once, in lower case.

    Raises:
        BadQuery: it is no query, or has something that is not kept right.
    """
    text, _ = history_joins(sql)
    tree = parsed(text, frozenset(map(str.lower, deterministic)))
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    names = (table.name.lower() for table in tree.find_all(exp.Table))
    return tuple(dict.fromkeys(name for name in names if name not in own))


class _Resolver:
    def __init__(
        self,
        relations: Sequence[Relation],
        histories: Mapping[str, tuple[str, str]],
        times: dict[int, Path],
    ) -> None:
        self._relations: dict[Path, Relation] = {}
        for relation in relations:
            for path in relation.paths:
                self._relations.setdefault(path, relation)
        self._histories = {name.lower(): bounds for name, bounds in histories.items()}
        self._times = times
        self.times_used: set[int] = set()
        self._aliases: set[str] = set()

    def query(self, node: exp.Expr, ctes: Mapping[str, _Cte], outer: _Scope | None) -> tuple[exp.Query, Outputs]:
        """A query in its plain form; `outer` has the names that it may read of the query around it."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this, ctes, outer)
        ctes = self._with_own(node, ctes)
        if node.args.get("limit") or node.args.get("offset"):
            return self._limited(node, ctes, outer)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, ctes, outer)
        if not isinstance(node, exp.Select):
            refuse("statement", "is no query", "Write a `select`.", node)
        query, outputs, _ = self._select(node, ctes, outer)
        return query, outputs

    def _with_own(self, node: exp.Expr, ctes: Mapping[str, _Cte]) -> Mapping[str, _Cte]:
        own = node.args.get("with_")
        for each in own.expressions if own else ():
            names = tuple(name.name for name in each.args["alias"].args.get("columns") or ())
            ctes = {**ctes, each.alias.lower(): _Cte(each.this, names, ctes)}
            # A query that nothing reads is checked all the same.
            self.query(each.this, ctes[each.alias.lower()].others, None)
        return ctes

    def _limited(self, node: exp.Expr, ctes: Mapping[str, _Cte], outer: _Scope | None) -> tuple[exp.Query, Outputs]:
        """The rows of a query up to a limit, in the order that it says and then in that of all columns.

        Rows that are equal in all of it are as good as one another, so that the same are left each time.
        """
        order = node.args.get("order")
        if order is None:
            refuse("limit", "leaves whatever rows come first", "Add an `order by` before it.", node)
        if not isinstance(node, exp.Select):
            refuse(
                "limit",
                "is of several selects, of which the optimizer of Spark 4.2 loses columns",
                "Make them a view of its own, and limit the rows of that.",
                node,
            )
        query, outputs, places = self._select(node, ctes, outer, order.expressions)
        if _reads_beyond(query):
            refuse(
                "limit",
                "is for each row of the query around it",
                "Write an aggregate, such as max_by(value, order), or join rows numbered by row_number().",
                node,
            )
        source = self._derived(query, outputs, "limited", set())
        made = exp.Select(from_=exp.From(this=source.node))
        ordered = [
            exp.Ordered(**{**each.args, "this": _column(source.alias, place)})
            for each, place in zip(order.expressions, places, strict=True)
        ]
        others = (own for _, own in outputs if own not in places)
        ordered += [exp.Ordered(this=_column(source.alias, own), nulls_first=True) for own in others]
        made.set("order", exp.Order(expressions=ordered))
        for clause in ("limit", "offset"):
            if node.args.get(clause):
                made.set(clause, node.args[clause].copy())
        for _, own in outputs:
            made.append("expressions", exp.alias_(_column(source.alias, own), own, quoted=True))
        return made, outputs

    def _set_operation(
        self, node: exp.SetOperation, ctes: Mapping[str, _Cte], outer: _Scope | None
    ) -> tuple[exp.Query, Outputs]:
        left, outputs = self.query(node.this, ctes, outer)
        right, others = self.query(node.expression, ctes, outer)
        if len(outputs) != len(others):
            refuse(
                "columns",
                f"has {len(outputs)} columns on one side and {len(others)} on the other",
                "Write as many.",
                node,
            )
        _rename(right, dict(zip((own for _, own in others), (own for _, own in outputs), strict=True)))
        made = type(node)(this=_bracketed(left), expression=_bracketed(right), distinct=bool(node.args.get("distinct")))
        return made, outputs

    def _select(
        self, node: exp.Select, ctes: Mapping[str, _Cte], outer: _Scope | None, order: Sequence[exp.Expr] = ()
    ) -> tuple[exp.Query, Outputs, list[str]]:
        """A select, its columns, and for each value of `order` the column of the tree that has it.

        Such columns may stand behind those of the result.
        """
        scope = _Scope(outer=outer)
        made = exp.Select()
        from_ = node.args.get("from_")
        if from_ is not None:
            first = self._source(from_.this, ctes)
            scope.sources.append(first)
            joins = [self._join(join, scope, ctes) for join in node.args.get("joins") or ()]
            start, joins = _turned(first.node, joins)
            made.set("from_", exp.From(this=start))
            if joins:
                made.set("joins", joins)
        within = _Names(self, scope, ctes)
        projections = self._projections(node, scope, within)
        aliases = {name.lower(): value for name, value in projections if name}
        where = node.args.get("where")
        if where is not None:
            condition = within.expression(where.this)
            refuse_where(condition, is_aggregate, "where", "Write it in `having`.")
            made.set("where", exp.Where(this=condition))
        group = self._group(node, projections, within)
        if group:
            made.set("group", exp.Group(expressions=group))
        having = node.args.get("having")
        if having is not None:
            condition = within.expression(having.this, aliases, prefers_neither=True)
            made.set("having", exp.Having(this=condition))
        outputs: list[tuple[str, str]] = []
        for name, value in projections:
            own = self._unique_output(name or "column", [known for _, known in outputs])
            outputs.append((name, own))
            made.append("expressions", exp.alias_(value, own, quoted=True))
        if node.args.get("distinct"):
            made.set("distinct", exp.Distinct())
        places = [self._ordered_by(each, made, tuple(outputs), aliases, within) for each in order]
        check_groups(made, {source.alias for source in scope.sources})
        return made, tuple(outputs), places

    def _ordered_by(
        self,
        node: exp.Expr,
        made: exp.Select,
        outputs: Outputs,
        aliases: Mapping[str, exp.Expr],
        within: _Names,
    ) -> str:
        """The column of a select by which its rows are ordered, added where it is none of the result."""
        names = {name.lower(): own for name, own in outputs if name}
        place = _place_of(node.this, outputs, names)
        if place is not None:
            return place
        value = within.expression(node.this, aliases, prefers_neither=True)
        for each in made.expressions:
            if each.this == value:
                return str(each.alias)
        if made.args.get("distinct"):
            refuse("order", "is no column of the rows that are told apart", "Select it.", node)
        own = self._unique_output("order", [each.alias for each in made.expressions])
        made.append("expressions", exp.alias_(value, own, quoted=True))
        return own

    @staticmethod
    def _unique_output(name: str, others: list[str]) -> str:
        lower, own, number = [other.lower() for other in others], name, 2
        while own.lower() in lower:
            own, number = f"{name} {number}", number + 1
        return own

    def _source(self, node: exp.Expr, ctes: Mapping[str, _Cte]) -> _Source:
        alias = node.args.get("alias")
        names = tuple(name.name for name in (alias.args.get("columns") or () if alias else ()))
        if isinstance(node, exp.Subquery):
            query, outputs = self.query(node.this, ctes, None)
            return self._derived(query, _renamed(outputs, names, node), node.alias, {(node.alias.lower(),)})
        if not isinstance(node, exp.Table):
            refuse("unknown", "cannot be read in `from`", "Write a relation or a subquery.", node)
        parts = tuple(part.name for part in node.parts)
        path = tuple(part.lower() for part in parts)
        cte = ctes.get(path[0]) if len(path) == 1 else None
        called: set[Path] = {(node.alias.lower(),)} if node.alias else {path[at:] for at in range(len(path))}
        if cte is not None:
            query, outputs = self.query(cte.query, cte.others, None)
            outputs = _renamed(outputs, cte.columns, node)
            return self._derived(query, _renamed(outputs, names, node), node.alias_or_name, called)
        relation = self._relations.get(path)
        if relation is None:
            known = sorted({each.name for each in self._relations.values()} | {*ctes})
            raise BadQuery(
                f"there is no relation {'.'.join(parts)!r}. There are: {', '.join(known) or 'none'}.",
                "Correct the name, or add the relation to `of`.",
                reason="relation",
                value=".".join(parts),
                choices=tuple(known),
            )
        if not node.alias:
            called |= {(parts[-1].lower(),)}
        table = exp.Table(
            this=exp.to_identifier(relation.name, quoted=True),
            alias=self._alias(node.alias or parts[-1]),
        )
        table.meta["end"] = _end(node)
        outputs = tuple((name, name) for name in relation.columns)
        return _Source(table, frozenset(called), _renamed(outputs, names, node))

    def _derived(self, query: exp.Query, outputs: Outputs, alias: str, names: set[Path]) -> _Source:
        made = exp.Subquery(this=query, alias=self._alias(alias or "subquery"))
        return _Source(made, frozenset(names), outputs)

    def _alias(self, name: str) -> exp.TableAlias:
        own, number = name, 2
        while own.lower() in self._aliases:
            own, number = f"{name} {number}", number + 1
        self._aliases.add(own.lower())
        return exp.TableAlias(this=exp.to_identifier(own, quoted=True))

    def _join(self, node: exp.Join, scope: _Scope, ctes: Mapping[str, _Cte]) -> exp.Join:
        right = self._source(node.this, ctes)
        taken = {name for source in scope.sources for name in source.names}
        if len(right.names) == 1 and right.names & taken:
            refuse("alias", "has a name that is taken in this query", "Give it another name: ... as other.", node.this)
        side, kind = node.side, node.kind
        if kind in ("SEMI", "ANTI"):
            side = "LEFT"
        elif kind not in ("", "INNER", "CROSS", "OUTER"):
            refuse(
                "join",
                f"is a join {kind.lower()!r}, which is not known",
                "Write inner, left, full, semi or anti.",
                node,
            )
        elif kind == "OUTER" and not side:
            side = "FULL"
        on = node.args.get("on")
        conditions = []
        using = [name.name for name in node.args.get("using") or ()]
        left, visible = list(scope.sources), _Scope([*scope.sources, right], scope.outer, dict(scope.merged))
        for name in using:
            conditions.append(self._using(name, left, right, scope, visible, side, kind))
        if on is not None:
            conditions.append(_Names(self, visible, ctes).expression(on))
        end = right.node.meta.get("end", -1)
        time = self._times.get(end)
        if time is not None:
            self.times_used.add(end)
            conditions.append(self._in_force(time, right, visible))
        for condition in conditions:
            refuse_where(condition, is_query, "on", "Write the subquery in `where`, or join it.")
            refuse_where(condition, is_aggregate, "on", "Aggregate in a subquery, and join that.")
            inside = {source.alias for source in visible.sources}
            for column in condition.find_all(exp.Column):
                if column.table not in inside:
                    refuse("correlated join", "is of the query around this one", "Compare it in `where`.", column)
        if side in ("RIGHT", "FULL") and len(_joins_of(node)) > 1:
            refuse(
                "outer join",
                f"is a {side.lower()} join beside another join",
                "Write one of them in a view of its own.",
                node,
            )
        scope.merged = visible.merged
        if kind not in ("SEMI", "ANTI"):
            scope.sources.append(right)
        made = exp.Join(this=right.node)
        if not conditions:
            if side or kind in ("SEMI", "ANTI"):
                conditions = [exp.true()]
            else:
                made.set("kind", "CROSS")
                return made
        made.set("on", exp.and_(*conditions, copy=False))
        if kind in ("SEMI", "ANTI"):
            made.set("kind", kind)
        if side:
            made.set("side", side)
        return made

    def _using(
        self,
        name: str,
        left: list[_Source],
        right: _Source,
        scope: _Scope,
        visible: _Scope,
        side: str,
        kind: str,
    ) -> exp.Expr:
        own, others = scope.columns(name), right.column(name)
        for found, where in ((own, "before the join"), (others, "in the relation that is joined")):
            if len(found) != 1:
                raise BadQuery(
                    f"`using ({name})` needs one column {name!r} {where}; there are {len(found)}",
                    "Write on ... with the names of the relations.",
                    reason="column",
                    value=name,
                )
        one, other = own[0], others[0]
        if kind not in ("SEMI", "ANTI"):
            value: exp.Expr = other if side == "RIGHT" else one
            if side == "FULL":
                value = exp.Anonymous(this="coalesce", expressions=[one.copy(), other.copy()])
            aliases = frozenset(column.table for column in (*one.find_all(exp.Column), *other.find_all(exp.Column)))
            before = scope.merged.get(name.lower())
            written = (
                before.name
                if before
                else next(w for source in left for w, own in source.columns if w.lower() == name.lower())
            )
            visible.merged[name.lower()] = _Merged(
                written, value, aliases | (before.aliases if before else frozenset())
            )
        return exp.EQ(this=one.copy(), expression=other.copy())

    def _in_force(self, time: Path, right: _Source, visible: _Scope) -> exp.Expr:
        """The condition that an interval of a history has the time of a row in it."""
        bounds = self._histories.get(right.node.name.lower()) if isinstance(right.node, exp.Table) else None
        if bounds is None:
            raise BadQuery(
                f"{right.alias!r} is no history, so it has no time for which a row of it holds",
                f"Histories are: {', '.join(sorted(self._histories)) or 'none'}. Join others with on ....",
                reason="history",
                value=right.alias,
                choices=tuple(sorted(self._histories)),
            )
        at = _Names(self, visible, {}).path(list(time), exp.column(time[-1], *reversed(time[:-1])))
        begin, end = (_only(right, name) for name in bounds)
        return exp.and_(
            exp.GTE(this=at.copy(), expression=begin),
            exp.or_(exp.LT(this=at.copy(), expression=end), exp.Is(this=end.copy(), expression=exp.null())),
        )

    def _projections(self, node: exp.Select, scope: _Scope, within: _Names) -> list[tuple[str, exp.Expr]]:
        made: list[tuple[str, exp.Expr]] = []
        if not node.expressions:
            refuse("columns", "has no columns", "Write those that are meant.", node)
        for each in node.expressions:
            if isinstance(each, exp.Star):
                made += self._star(scope, None, each)
            elif isinstance(each, exp.Column) and isinstance(each.this, exp.Star):
                path = tuple(part.name.lower() for part in each.parts[:-1])
                made += self._star(scope, path, each)
            else:
                before = {name.lower(): value for name, value in made}
                value = within.expression(each.unalias(), before)
                made.append((_name_of(each), value))
        return made

    def _star(self, scope: _Scope, path: Path | None, node: exp.Expr) -> list[tuple[str, exp.Expr]]:
        sources = [source for source in scope.sources if path is None or path in source.names]
        if not sources:
            refuse("column", "names no relation of this `from`", "Write the alias of one, or the columns.", node)
        merged = scope.merged if path is None else {}
        first = [(each.name, each.value.copy()) for each in merged.values()]
        rest: list[tuple[str, exp.Expr]] = [
            (name, _column(source.alias, own))
            for source in sources
            for name, own in source.columns
            if name.lower() not in merged or source.alias not in merged[name.lower()].aliases
        ]
        return [*first, *rest]

    def _group(self, node: exp.Select, projections: list[tuple[str, exp.Expr]], within: _Names) -> list[exp.Expr]:
        group = node.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            return [value.copy() for _, value in projections if not has(value, is_aggregate)]
        made = []
        for each in group.expressions:
            if isinstance(each, exp.Literal) and not each.is_string:
                if not each.name.isdigit() or not 1 <= int(each.name) <= len(projections):
                    refuse("position", "is the position of no column", f"There are {len(projections)}.", each)
                value = projections[int(each.name) - 1][1].copy()
            else:
                names = {name.lower(): value for name, value in projections}
                whole = isinstance(each, exp.Column) and len(each.parts) == 1
                value = within.expression(each, names if whole else {})
                if isinstance(value, exp.Paren):
                    value = value.this
            refuse_where(value, is_aggregate, "group by", "Aggregate in a subquery, and group its rows.")
            refuse_where(value, is_window, "group by", "Compute it in a subquery, and group its rows.")
            refuse_where(value, is_query, "group by", "Compute it in a subquery in `from`, and group its rows.")
            made.append(value)
        return made


@dataclass
class _Names:
    """The resolution of expressions within one scope."""

    resolver: _Resolver
    scope: _Scope
    ctes: Mapping[str, _Cte]

    def expression(
        self,
        node: exp.Expr,
        aliases: Mapping[str, exp.Expr] | None = None,
        prefers_neither: bool = False,
    ) -> exp.Expr:
        """An expression with every column of a known source.

        Args:
            node: As it was parsed.
            aliases: Projections that may be read by their names in lower case, where no source has such a column.
            prefers_neither: A name of both a projection and another column is refused.
        """

        def replaced(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Column):
                if isinstance(each.this, exp.Star):
                    refuse("star", "counts or takes all columns", "Write the columns, or count(*).", each)
                return self._column(each, aliases or {}, prefers_neither)
            if isinstance(each, exp.Alias) and not isinstance(each.parent, exp.Anonymous):
                refuse("alias", "has a name within an expression", "Leave the name out.", each)
            if isinstance(each, (exp.Exists, exp.Subquery)) or (isinstance(each, exp.In) and each.args.get("query")):
                return self._subquery(each, aliases or {}, prefers_neither)
            return each

        return _replaced(node, replaced)

    def _subquery(self, node: exp.Expr, aliases: Mapping[str, exp.Expr], prefers_neither: bool) -> exp.Expr:
        inner = node.args["query"] if isinstance(node, exp.In) else node.this
        query, outputs = self.resolver.query(inner, self.ctes, self.scope)
        if not isinstance(query, exp.Select):
            refuse(
                "set operations", "is a subquery of several selects", "Read it in `from`, or write one select.", node
            )
        if isinstance(node, exp.Exists):
            return exp.Exists(this=query)
        if isinstance(node, exp.In):
            this = self.expression(node.this, aliases, prefers_neither)
            number = len(this.expressions) if isinstance(this, exp.Tuple) else 1
            if number != len(outputs):
                refuse("columns", f"compares {number} with {len(outputs)} columns", "Select as many.", node)
            return exp.In(this=this, query=exp.Subquery(this=query))
        if len(outputs) != 1:
            refuse("columns", "is a value of more than one column", "Select one.", node)
        return exp.Subquery(this=query)

    def _column(self, node: exp.Column, aliases: Mapping[str, exp.Expr], prefers_neither: bool) -> exp.Expr:
        parts = [part.name for part in node.parts]
        own = self._in_scope(parts, self.scope, node)
        alias = aliases.get(parts[0].lower())
        if own is not None and alias is not None and len(parts) == 1 and prefers_neither and own != alias:
            refuse(
                "ambiguous",
                "is both a column and a name given in `select`",
                "Write the name of the relation before it, or give another name.",
                node,
            )
        if own is not None:
            return own
        if alias is not None:
            return _fields(_wrapped(alias.copy()), parts[1:])
        return self.path(parts, node)

    def path(self, parts: list[str], node: exp.Expr) -> exp.Expr:
        """The column of a path, in this scope or in one around it."""
        scope: _Scope | None = self.scope
        while scope is not None:
            found = self._in_scope(parts, scope, node)
            if found is not None:
                return found
            scope = scope.outer
        known = tuple(dict.fromkeys(name for source in self.scope.sources for name, _ in source.columns))
        name = ".".join(parts)
        raise BadQuery(
            f"there is no column {name!r}. There are: {', '.join(known) or 'none'}.",
            "Correct the name, or read a relation that has it.",
            reason="column",
            value=name,
            column=parts[-1],
            choices=known,
        )

    @staticmethod
    def _in_scope(parts: list[str], scope: _Scope, node: exp.Expr) -> exp.Expr | None:
        lower = [part.lower() for part in parts]
        found = [
            _fields(column, parts[length + 1 :])
            for length in range(1, len(parts))
            for source in scope.sources
            if tuple(lower[:length]) in source.names
            for column in source.column(parts[length])
        ]
        if not found:
            found = [_fields(column, parts[1:]) for column in scope.columns(parts[0])]
        if len(found) > 1:
            refuse("ambiguous", "is a column of more than one relation", "Write the name of one before it.", node)
        return found[0] if found else None


def _place_of(node: exp.Expr, outputs: Outputs, names: Mapping[str, str]) -> str | None:
    """The column of a result that `order by` names, or whose position it says; None where it does neither."""
    if isinstance(node, exp.Literal) and not node.is_string:
        if not node.name.isdigit() or not 1 <= int(node.name) <= len(outputs):
            refuse("position", "is the position of no column", f"There are {len(outputs)}.", node)
        return outputs[int(node.name) - 1][1]
    return names.get(node.name.lower()) if isinstance(node, exp.Column) and len(node.parts) == 1 else None


def _reads_beyond(query: exp.Expr) -> bool:
    """True where a query in its plain form reads columns of a query around it."""
    own = {source.alias for source in query.find_all(exp.Table, exp.Subquery)}
    return any(column.table not in own for column in query.find_all(exp.Column))


def _turned(first: exp.Expr, joins: list[exp.Join]) -> tuple[exp.Expr, list[exp.Join]]:
    """The first source and the joins; a right join as the left join that it is from the other side."""
    if len(joins) == 1 and joins[0].side == "RIGHT":
        return joins[0].this, [exp.Join(this=first, side="LEFT", on=joins[0].args["on"])]
    return first, joins


def _column(alias: str, name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def _only(source: _Source, name: str) -> exp.Column:
    columns = source.column(name)
    if len(columns) != 1:
        raise BadQuery(
            f"{source.alias!r} has no column {name!r}, so it is no history",
            "Say which columns are the bounds of its intervals.",
            reason="history",
            value=name,
        )
    return columns[0]


def _fields(value: exp.Expr, path: Sequence[str]) -> exp.Expr:
    for name in path:
        value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
    return value


def _wrapped(value: exp.Expr) -> exp.Expr:
    simple = (exp.Column, exp.Literal, exp.Anonymous, exp.Paren, exp.Cast, exp.Case, exp.Dot)
    return value if isinstance(value, simple) else exp.Paren(this=value)


def _replaced(node: exp.Expr, replace: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy in which nodes are replaced from the top; nothing within a replacement is looked at."""
    made = replace(node)
    if made is not node:
        return made
    made = node.copy()
    for name, value in node.args.items():
        if isinstance(value, exp.Expr):
            made.set(name, _replaced(value, replace))
        elif isinstance(value, list):
            made.set(name, [_replaced(each, replace) if isinstance(each, exp.Expr) else each for each in value])
    return made


def _bracketed(query: exp.Query) -> exp.Subquery:
    return exp.Subquery(this=query)


def _first_select(query: exp.Expr) -> exp.Expr:
    return query if isinstance(query, exp.Select) else _first_select(query.this)


def _rename(query: exp.Expr, names: Mapping[str, str]) -> None:
    """Give the projections of a query other names."""
    if isinstance(query, exp.Subquery):
        _rename(query.this, names)
    elif isinstance(query, exp.SetOperation):
        _rename(query.this, names)
        _rename(query.expression, names)
    else:
        for each in query.expressions:
            each.set("alias", exp.to_identifier(names[each.alias], quoted=True))


def _renamed(outputs: Outputs, names: tuple[str, ...], node: exp.Expr) -> Outputs:
    """Columns by the names that an alias gives them."""
    if not names:
        return outputs
    if len(names) != len(outputs):
        refuse("columns", f"gives {len(names)} names to {len(outputs)} columns", "Give one to each.", node)
    return tuple((name, own) for name, (_, own) in zip(names, outputs, strict=True))


def _name_of(node: exp.Expr) -> str:
    """The name of a projection; "" where it was given none."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, (exp.Column, exp.Dot)):
        return str(node.name)
    return ""


def _end(node: exp.Table) -> int:
    return int(node.this.meta.get("end", -1))


def _joins_of(node: exp.Join) -> list[exp.Join]:
    return list(node.parent.args["joins"]) if node.parent is not None else []


def parsed_name(name: str) -> exp.Table:
    """The name of a table or view as Spark's SQL writes it; one that is no SQL is quoted as a whole.

    Raises:
        BadQuery: it is no name.
    """
    try:
        table = exp.to_table(name, dialect=QuerySpark)
    except PARSER_ERRORS:
        table = exp.Table()
    if not table.this or not all(isinstance(part, exp.Identifier) for part in table.parts):
        raise BadQuery(f"{name!r} is no name of a table", "Quote it: `name`.", reason="syntax", value=name)
    return table
