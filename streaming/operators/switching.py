"""The switch from the tables of an operator to those that were built anew beside them.

Only whoever runs the operator switches, between two of its steps. Whatever kills a switch, until it is finished readers
see the old tables, and the next start finishes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.operators.progress import (
    BEFORE_PREFIX,
    CONTINUES_PREFIX,
    FORGOTTEN,
    GENERATION,
    GONE,
    SUPERSEDED,
    generation_of,
    is_gone,
    kept_days,
    property_of_kept,
)
from streaming.tables import (
    DECLARATION,
    TableAbout,
    bounded_columns,
    delta,
    describe,
    numbers_of,
    recorded_declaration,
    set_properties,
    storage,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEXT = "next"
"""The suffix that the name of an operator gets while its tables are built anew."""

_READY = "ready"
_APPEND_ONLY = "delta.appendOnly"
_THROUGH = "through."


def next_of(operator: Operator) -> Operator:
    """The operator under the name that it has while its tables are built anew."""
    return operator.renamed(operator.table_name(NEXT))


def make_ready(lake: Lake, operator: Operator) -> None:
    """Say that what was built beside the operator's tables may replace them, and which generation it will be."""
    numbers = {_READY: generation_of(delta.open_table(lake.table(operator))) + 1}
    delta.note(lake.table(next_of(operator)), says=numbers, numbers=numbers)


def note_caught_up(lake: Lake, operator: Operator) -> None:
    """Say that what is built beside the operator's tables has followed as much as these, where it says so nowhere yet.

    So it can be told which of its rows come after those that there were.
    """
    beside = next_of(operator)
    for spec in operator.streamed:
        uri, there = lake.table(beside, spec.suffix), delta.open_table(lake.table(operator, spec.suffix))
        built = delta.open_table(uri)
        if built is None or there is None or has_caught_up(lake, operator, spec.suffix):
            continue
        numbers = numbers_of(built)
        if _through(numbers) == _through(numbers_of(there)):
            noted = {f"{CONTINUES_PREFIX}{name}": number for name, number in numbers.items()}
            delta.note(uri, says={"caught_up": _through(numbers)}, numbers=noted)


def has_caught_up(lake: Lake, operator: Operator, suffix: str = "") -> bool:
    """True if a table that is built beside one of the operator's has noted how it was when it had followed as much."""
    built = delta.open_table(lake.table(next_of(operator), suffix))
    return built is not None and bool(_through(_noted(numbers_of(built))))


def ready_generation(lake: Lake, operator: Operator) -> int | None:
    """The generation that was built beside the operator's tables and waits for the switch, or None."""
    table = delta.open_table(lake.table(next_of(operator)))
    return None if table is None else table.transaction_version(_READY)


def switch(spark: SparkSession, lake: Lake, operator: Operator) -> None:
    """Put the tables that are ready in place of the operator's; the commit that replaces its own table counts.

    It needs no declaration but the name: the process that runs the operator may have an older one.
    """
    generation, beside = ready_generation(lake, operator), next_of(operator)
    assert generation is not None
    for suffix in [*operator.own_suffixes, ""]:
        uri, source = lake.table(operator, suffix), lake.table(beside, suffix)
        there = delta.open_table(uri)
        if there is not None and generation_of(there) >= generation:
            continue
        if delta.exists(source):
            _take_over(spark, source, uri, generation, operator)
        elif there is not None:
            _replace(delta.read(spark, uri).limit(0), uri, generation, {GONE: 1})
    for uri in (lake.table(operator, suffix) for suffix in operator.own_suffixes):
        there = delta.open_table(uri)
        if there is not None and is_gone(there):
            storage.remove_folder(uri)
    remove_next(lake, operator)


def remove_next(lake: Lake, operator: Operator) -> None:
    """Remove what was built beside the operator's tables, its own table last, which says that it is ready."""
    beside = next_of(operator)
    for suffix in [*beside.own_suffixes, ""]:
        storage.remove_folder(lake.table(beside, suffix))


def _take_over(spark: SparkSession, source: str, uri: str, generation: int, operator: Operator) -> None:
    """Rows, columns, declaration and numbers of the table at `source`, in place of those at `uri`."""
    built = delta.opened(source)
    metadata, rows = built.metadata(), delta.read(spark, source)
    there = delta.open_table(uri)
    if there is not None and there.metadata().partition_columns != metadata.partition_columns:
        # State of another kind, which nobody but the steps reads.
        storage.remove_folder(uri)
    declaration = {DECLARATION: json.dumps({**(recorded_declaration(built) or {}), "operator": operator.name})}
    # Those of a savepoint keep numbers of erased rows; what is built anew keeps none, also where one that died did.
    kept = property_of_kept(kept_days(built), generation)
    if kept_days(built) or (there is not None and kept.keys() & there.metadata().configuration.keys()):
        declaration |= kept
    about = (metadata.description or "").replace(next_of(operator).name, operator.name)
    said = TableAbout.in_table(built)
    table = delta.create(uri, rows.schema, append_only=False, description=about, properties=declaration, about=said)
    # A declaration that is of other rows than the table's would be refused.
    set_properties(table, declaration, needed=True)
    numbers = {name: number for name, number in numbers_of(built).items() if name != _READY}
    numbers |= {} if there is None else _continued(numbers, numbers_of(there), generation)
    # Those that the older table names, too, until it names others.
    bounded = dict.fromkeys((*bounded_columns(built), *bounded_columns(table)))
    _replace(rows, uri, generation, numbers, [name for name in bounded if name in rows.columns])
    table = delta.opened(uri)
    describe(table, said)
    if metadata.configuration.get(_APPEND_ONLY) == "true":
        set_properties(table, {_APPEND_ONLY: "true"})


def _continued(built: Mapping[str, int], there: Mapping[str, int], generation: int) -> dict[str, int]:
    """The numbers that a table `built` anew keeps of the one that is `there`; none if it was never as far as that."""
    own = {name: number for name, number in there.items() if not name.startswith((BEFORE_PREFIX, CONTINUES_PREFIX))}
    then = next((each for each in (_noted(built), built) if _through(each) == _through(own)), None)
    if then is None or not _through(own):
        return {}
    before = {f"{BEFORE_PREFIX}{name}": number for name, number in own.items()}
    continues = {f"{CONTINUES_PREFIX}{name}": then.get(name, FORGOTTEN) for name in own}
    return {**before, **continues, f"{CONTINUES_PREFIX}{GENERATION}": generation}


def _noted(numbers: Mapping[str, int]) -> dict[str, int]:
    return {
        name.removeprefix(CONTINUES_PREFIX): each for name, each in numbers.items() if name.startswith(CONTINUES_PREFIX)
    }


def _through(numbers: Mapping[str, int]) -> dict[str, int]:
    """The numbers that say how far the table is in each log."""
    return {name: number for name, number in numbers.items() if name.startswith(_THROUGH) and number != FORGOTTEN}


def _replace(
    rows: DataFrame, uri: str, generation: int, numbers: Mapping[str, int], statistics: Sequence[str] = ()
) -> None:
    """All rows of the table at `uri` by `rows`, and all its numbers by `numbers`, in one commit."""
    table = delta.opened(uri)
    # An append-only table takes no replacement.
    set_properties(table, {_APPEND_ONLY: "false"}, needed=True)
    forgotten = dict.fromkeys(numbers_of(table), FORGOTTEN)
    kept = {**forgotten, **numbers, GENERATION: generation, SUPERSEDED: table.version()}
    delta.replace_all(rows, uri, says=kept, numbers=kept, statistics=statistics)
