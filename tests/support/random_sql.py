"""Random queries of a small grammar over the relations of `sql_views`: joins, subqueries, groups, windows, unions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.sql_views import SCHEMA

Column = tuple[str, str]
"""An expression and its kind: `int` or `varchar`."""


@dataclass
class RandomSql:
    """A grammar; each call of `query` gives a query and a key of it."""

    draws: random.Random
    deepest: int = 2
    _aliases: int = 0
    _ctes: list[tuple[str, str, list[Column]]] = field(default_factory=list)

    def query(self) -> tuple[str, tuple[str, ...]]:
        """A query, and some columns of its result as the key."""
        self._ctes = []
        if self._with(0.25):
            sql, columns = self._any(1)
            self._ctes.append(("shared", sql, columns))
        sql, columns = self._any(0)
        names = [name for name, _ in columns]
        key = self.draws.sample(names, k=min(len(names), self.draws.choice([1, 1, 1, 2, 2, 0])))
        head = "".join(f"with {name} as ({body}) " for name, body, _ in self._ctes)
        return head + sql, tuple(key)

    def _with(self, chance: float) -> bool:
        return self.draws.random() < chance

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    def _any(self, depth: int) -> tuple[str, list[Column]]:
        if self._with(0.2) and depth < self.deepest:
            return self._set_operation(depth)
        return self._select(depth)

    def _set_operation(self, depth: int) -> tuple[str, list[Column]]:
        left, columns = self._select(depth + 1)
        kinds = [kind for _, kind in columns]
        right, _ = self._select(depth + 1, kinds)
        word = self.draws.choice(["union all", "union all", "union", "except", "intersect", "except all"])
        return f"({left}) {word} ({right})", columns

    def _source(self, depth: int) -> tuple[str, list[Column]]:
        alias = self._alias()
        if self._ctes and self._with(0.5):
            name, _, columns = self._ctes[0]
            return f"{name} {alias}", [(f"{alias}.{column}", kind) for column, kind in columns]
        if depth < self.deepest and self._with(0.3):
            sql, columns = self._any(depth + 1)
            if self._with(0.15):
                sql += f" order by {columns[-1][0]} desc limit {self.draws.randrange(1, 4)}"
            return f"({sql}) {alias}", [(f"{alias}.{column}", kind) for column, kind in columns]
        relation = self.draws.choice(list(SCHEMA))
        return f"{relation} {alias}", [(f"{alias}.{column}", kind) for column, kind in SCHEMA[relation].items()]

    def _from(self, depth: int) -> tuple[str, list[Column]]:
        sql, columns = self._source(depth)
        number = self.draws.choice([0, 1, 1, 2])
        for _ in range(number):
            joined, more = self._source(depth)
            kinds = ["join", "left join", "left join", "left semi join", "left anti join", "right join", "full join"]
            kind = self.draws.choice(kinds[: len(kinds) if number == 1 else 5])
            conditions = [self._equality(columns, more)]
            if self._with(0.4):
                conditions.append(self._simple(columns + more))
            sql = f"{sql} {kind} {joined} on {' and '.join(conditions)}"
            if "semi" not in kind and "anti" not in kind:
                columns = columns + more
        return sql, columns

    def _equality(self, one: Sequence[Column], other: Sequence[Column]) -> str:
        kinds = {kind for _, kind in one} & {kind for _, kind in other}
        if not kinds:
            return f"{one[0][0]} is not null"
        kind = self.draws.choice(sorted(kinds))
        return f"{self._column(one, kind)} = {self._column(other, kind)}"

    def _column(self, columns: Sequence[Column], kind: str) -> str:
        of_kind = [name for name, each in columns if each == kind]
        return self.draws.choice(of_kind) if of_kind else {"int": "3", "varchar": "'de'"}[kind]

    def _value(self, columns: Sequence[Column], kind: str) -> str:
        column = self._column(columns, kind)
        if kind == "varchar":
            return self.draws.choice([column, column, f"coalesce({column}, 'none')"])
        return self.draws.choice([column, column, column, f"coalesce({column}, -1)", f"{column} % 3", f"{column} + 1"])

    def _simple(self, columns: Sequence[Column]) -> str:
        kind = self.draws.choice(["int", "int", "varchar"])
        column = self._column(columns, kind)
        if self._with(0.25):
            return f"{column} is {self.draws.choice(['', 'not '])}null"
        if kind == "varchar":
            return f"{column} {self.draws.choice(['=', '<>'])} 'de'"
        return f"{column} {self.draws.choice(['=', '<', '>', '<=', '<>'])} {self.draws.randrange(6)}"

    def _condition(self, columns: Sequence[Column], depth: int) -> str:
        draw = self.draws.random()
        if draw < 0.45 or depth >= self.deepest:
            return self._simple(columns)
        if draw < 0.6:
            return f"({self._simple(columns)} or {self._condition(columns, depth + 1)})"
        inner, own = self._from(depth + 1)
        where = self._equality(own, columns)
        if self._with(0.4):
            where = f"{where} and {self._condition(own, depth + 1)}"
        if draw < 0.85:
            return f"{self.draws.choice(['', 'not '])}exists (select 1 from {inner} where {where})"
        if draw < 0.92:
            value = self._column(own, "int")
            word = self.draws.choice(["in", "not in"])
            return f"{self._column(columns, 'int')} {word} (select {value} from {inner} where {self._simple(own)})"
        value = self.draws.choice(["count(*)", f"max({self._column(own, 'int')})"])
        if self._with(0.3):
            where = self._simple(own)
        return f"{self._column(columns, 'int')} < (select {value} from {inner} where {where})"

    def _select(self, depth: int, kinds: Sequence[str] = ()) -> tuple[str, list[Column]]:
        source, columns = self._from(depth)
        kinds = list(kinds) or [self.draws.choice(["int", "int", "varchar"]) for _ in range(self.draws.choice([2, 3]))]
        tail = f" from {source}"
        if self._with(0.5):
            tail += f" where {self._condition(columns, depth)}"
            if self._with(0.3):
                tail += f" and {self._condition(columns, depth)}"
        form = self.draws.choice(["rows", "rows", "distinct", "group", "group", "group", "window"])
        values = [self._value(columns, kind) for kind in kinds]
        head = "select "
        if form == "distinct":
            head += "distinct "
        elif form == "group":
            grouped = values[: max(1, self.draws.randrange(len(values)))]
            values = [
                value if at < len(grouped) else self._aggregate(columns, kind)
                for at, (value, kind) in enumerate(zip(values, kinds, strict=True))
            ]
            tail += f" group by {', '.join(grouped)}"
            if self._with(0.4):
                tail += f" having {self._aggregate(columns, 'int')} {self.draws.choice(['<', '>', '='])} 3"
        elif form == "window":
            parts = ", ".join(values[:-1])
            values[-1] = self._window(columns, kinds[-1], parts)
        names = [f"c{at}" for at in range(len(kinds))]
        projected = ", ".join(f"{value} as {name}" for value, name in zip(values, names, strict=True))
        return f"{head}{projected}{tail}", list(zip(names, kinds, strict=True))

    def _aggregate(self, columns: Sequence[Column], kind: str) -> str:
        if kind == "varchar":
            return f"{self.draws.choice(['min', 'max'])}({self._column(columns, kind)})"
        column = self._column(columns, "int")
        return self.draws.choice(
            ["count(*)", f"count({column})", f"sum({column})", f"max({column})", f"count(distinct {column})"]
        )

    def _window(self, columns: Sequence[Column], kind: str, parts: str) -> str:
        if kind == "varchar":
            return f"max({self._column(columns, kind)}) over (partition by {parts})"
        function = self.draws.choice(["count(*)", f"sum({self._column(columns, 'int')})", "rank()"])
        order = f" order by {self._column(columns, 'int')}" if function == "rank()" else ""
        return f"{function} over (partition by {parts}{order})"
