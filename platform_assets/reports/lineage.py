"""Which columns of which tables a report's columns are computed from, as Spark's analysed plan tells."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

Columns = frozenset[tuple[str, str]]
"""Columns of tables: where the table or a file of it lies, and the column's name."""

_NONE: Columns = frozenset()
_FILE = "_metadata"
"""Spark's column about the file that a row is from; a table's partition columns are read from its path."""


def columns_read(frame: DataFrame) -> dict[str, Columns]:
    """For each column of the frame the columns that its values are computed from.

    Those that only decide which rows there are (conditions, keys of joins and groups) are not among them. A column of
    rows that lie in no file, such as those of a frame made in memory, is computed from none.
    """
    context: Any = frame.sparkSession.sparkContext
    analyzed: Any = frame._jdf.queryExecution().analyzed()
    plan = _Plan(context._jvm.scala.jdk.javaapi.CollectionConverters, analyzed)
    return {name: plan.columns(attribute, name) for attribute, name in plan.output(analyzed)}


class _Plan:
    """The origins of each attribute of a plan, by the number that Spark gives it.

    The plan is read as JSON in one go, since each call to the JVM takes its time; what the JSON lacks is asked for.
    """

    def __init__(self, converters: Any, analyzed: Any) -> None:
        self._converters = converters
        self._made_of: defaultdict[int, set[int]] = defaultdict(set)
        self._names: dict[int, str] = {}
        self._of_files: dict[int, Columns] = {}
        nodes = json.loads(analyzed.toJSON())
        for leaf in self._list(analyzed.collectLeaves()):
            location = self._location(leaf)
            for made, name in self.output(leaf):
                self._of_files[made] = _NONE if location is None else frozenset({(location, name)})
        for node in nodes:
            self._read_names(node)
        for node in nodes:
            self._read_nameless(node)
        self._follow_unions(analyzed)

    def output(self, node: Any) -> list[tuple[int, str]]:
        """Number and name of each column of a node."""
        return [(made.exprId().id(), made.name()) for made in self._list(node.output())]

    def columns(self, attribute: int, name: str, followed: frozenset[int] = frozenset()) -> Columns:
        """The columns of files that an attribute of this name comes down to; of those `followed`, nothing new."""
        origins = self._of_files.get(attribute, _NONE)
        if any(column == _FILE for _, column in origins):
            return frozenset((location, name) for location, _ in origins)
        followed |= {attribute}
        name = self._names.get(attribute, name)
        return origins.union(*(self.columns(part, name, followed) for part in self._made_of[attribute] - followed))

    def _read_names(self, node: Mapping[str, Any]) -> None:
        """Take note of what a node makes under a name."""
        for tree in _trees([*node.values()]):
            if tree[0]["class"].endswith(".Alias"):
                self._made_of[_number(tree[0])] |= {*_references(tree[1:])}
                self._names[_number(tree[0])] = tree[0]["name"]

    def _read_nameless(self, node: Mapping[str, Any]) -> None:
        """Take note of what a node makes otherwise: of each projection in its place, or of all that it reads."""
        if not node["num-children"]:
            return
        made = [_number(tree[0]) for tree in _trees([node.get("generatorOutput", []), node.get("output", [])])]
        new = {one for one in made if one not in self._made_of and one not in self._of_files}
        reads = {one for tree in _trees([*node.values()]) for one in _references(tree)} - new
        rows = [[*_trees(row)] for row in node.get("projections") or ()]
        for place, one in enumerate(made):
            if one in new:
                self._made_of[one] = {part for row in rows for part in _references(row[place])} if rows else reads

    def _follow_unions(self, node: Any) -> None:
        children = self._list(node.children())
        if node.nodeName() == "Union":
            for made, *parts in zip(*map(self.output, (node, *children)), strict=True):
                self._made_of[made[0]] |= {part for part, _ in parts}
        for child in children:
            self._follow_unions(child)

    def _list(self, sequence: Any) -> list[Any]:
        return list(self._converters.asJava(sequence))

    def _location(self, leaf: Any) -> str | None:
        if not leaf.getClass().getSimpleName().startswith("LogicalRelation"):
            return None
        relation = leaf.relation()
        if relation.getClass().getSimpleName() != "HadoopFsRelation":
            return None
        (root, *_) = self._list(relation.location().rootPaths())
        return str(root.toString())


def _trees(value: Any) -> Iterator[list[Mapping[str, Any]]]:
    """The expressions in a field of a node: each a list, the expression first, then those in it."""
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "class" in value[0]:
            yield value
        else:
            for entry in value:
                yield from _trees(entry)


def _references(tree: list[Mapping[str, Any]]) -> Iterator[int]:
    for entry in tree:
        if entry["class"].endswith(".AttributeReference"):
            yield _number(entry)


def _number(expression: Mapping[str, Any]) -> int:
    return int(expression["exprId"]["id"])
