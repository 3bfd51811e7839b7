"""The declaration behind a table: each table of an operator records the one that its rows follow from.

A declaration that would change results is refused on tables that another one made, so that no table ever holds results
of two kinds; one that would not is adopted without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streaming.base import ChangedDeclaration, OperatorError, T
from streaming.declare import CURRENT, Operator
from streaming.lake import Lake
from streaming.log import newest_retraction
from streaming.operators.progress import BORN, generation_of
from streaming.tables import (
    DECLARATION,
    FactChange,
    TableAbout,
    changed_facts,
    delta,
    recorded_declaration,
    set_properties,
)


def create_table(
    lake: Lake,
    operator: Operator,
    suffix: str,
    schema: T.StructType,
    bounded: tuple[str, ...] | None = None,
    *,
    partition_by: Sequence[str] | None = None,
) -> str:
    """Create a table of the operator, empty, if it is not there yet; returns where it is.

    It is of the generation of the operator's own table. `bounded` are the columns whose bounds its files keep, as it is
    declared where it is left out. It is partitioned by its day where nothing else is said.
    """
    spec = next(table for table in operator.tables if table.suffix == suffix)
    uri = lake.table(operator, suffix)
    if delta.exists(uri):
        return uri
    generation = generation_of(delta.open_table(lake.table(operator)))
    about = about_table(operator, suffix)
    born = {BORN: str(generation)} if generation else {}
    delta.create(
        uri,
        schema,
        append_only=spec.written_by == "stream" and not (spec.is_replaced or spec.is_state),
        description=spec.description,
        partition_by=partition_by,
        properties={**declaration_properties(operator), **born},
        about=about if bounded is None else replace(about, bounded=bounded),
    )
    return uri


def about_table(operator: Operator, suffix: str = "") -> TableAbout:
    """The meaning and the key of a table of the operator, and which of its columns have bounds."""
    unique = next((law.unique for law in operator.laws_of(suffix) if law.unique), ())
    key = operator.result_key if suffix == CURRENT else unique
    spec = next(spec for spec in (*operator.tables, *operator.published) if spec.suffix == suffix)
    return TableAbout.of(operator.columns_of(suffix), key, spec.bounded)


def declaration_properties(operator: Operator, **more: Any) -> dict[str, str]:
    """The properties with which every table of the operator is created; `more` are JSON values to record beside."""
    makes = dict(operator.whole_fingerprint)
    recorded = {"operator": operator.name, "kind": type(operator).__name__, "makes": makes, **more}
    return {DECLARATION: json.dumps(recorded)}


def check_retractions(lake: Lake, operator: Operator) -> None:
    """Refuse an operator that takes each row for one that stands, where rows of a stream of it were taken back.

    Raises:
        OperatorError: with what to do instead.
    """
    for stream in operator.reads:
        refusal = operator.refuses(stream)
        batch = newest_retraction(lake, stream) if refusal else None
        if batch is not None:
            raise OperatorError(
                f"{operator.kind_name} {operator.name!r} cannot follow stream {stream.name!r}, of which rows were "
                f"taken back, last by batch {batch}: {refusal}",
                "`tidemark retractions` lists them. Or let a view follow the stream, and follow what is current of it.",
                operator=operator.name,
                stream=stream.name,
            )


def check_declaration(
    lake: Lake,
    operator: Operator,
    counts_as: Callable[[dict[str, Any]], dict[str, Any]] = lambda makes: makes,
    way_out: str = "",
) -> None:
    """Refuse a declaration that would change what the operator's tables hold.

    `counts_as` is as in `declaration_changes`; `way_out` is what operators of this kind have besides being built anew.
    Tables from before there was a record get one: nobody knows what made them.

    Raises:
        ChangedDeclaration: with each difference in words, and the command that builds the tables anew.
        OperatorError: it reads rows of which some were taken back, and takes each for one that stands.
    """
    check_retractions(lake, operator)
    for spec in operator.tables:
        table = delta.open_table(lake.table(operator, spec.suffix))
        if table is not None and recorded_declaration(table) is None:
            set_properties(table, declaration_properties(operator))
    for suffix, changes in declaration_changes(lake, operator, counts_as).items():
        raise ChangedDeclaration(
            f"{operator.kind_name} {operator.name!r} is not the one that made its table "
            f"{lake.table(operator, suffix)!r}: {'; '.join(map(str, changes))}. Going on would mix results of two "
            f"kinds. Give the old declaration back{way_out}{_or_else(operator)}. Nothing was changed."
        )


def declaration_changes(
    lake: Lake,
    operator: Operator,
    counts_as: Callable[[dict[str, Any]], dict[str, Any]] = lambda makes: makes,
) -> dict[str, tuple[FactChange, ...]]:
    """The facts in which the declaration differs from those that made its tables, by the suffix of each such table.

    `counts_as` tells of a fingerprint that was recorded which one it may be taken for. Nothing is written.
    """
    declared = json.loads(declaration_properties(operator)[DECLARATION])
    found: dict[str, tuple[FactChange, ...]] = {}
    for spec in operator.tables:
        table = delta.open_table(lake.table(operator, spec.suffix))
        recorded = None if table is None else recorded_declaration(table)
        if recorded is None:
            continue
        # What an older version did not record is not known to have changed; but no stream had a key then.
        without_keys: dict[str, Any] = {"revisions": {}} if "revisions" in declared["makes"] else {}
        before = {**declared["makes"], **without_keys, **counts_as(recorded["makes"])}
        changes = list(changed_facts(before, declared["makes"]))
        if recorded["kind"] != declared["kind"]:
            changes.insert(0, FactChange("kind", None, recorded["kind"], declared["kind"]))
        if changes:
            found[spec.suffix] = tuple(changes)
    return found


def has_published(lake: Lake, operator: Operator) -> bool:
    """True where a table of the operator but its state has a row, or is of a later generation than the first."""
    beside = {spec.suffix: spec for spec in operator.tables}
    for suffix in ("", *operator.own_suffixes):
        table = delta.open_table(lake.table(operator, suffix))
        if table is None or (suffix in beside and beside[suffix].is_state):
            continue
        if generation_of(table) > 0 or delta.row_count(table) > 0:
            return True
    return False


def _or_else(operator: Operator) -> str:
    if operator.never_rebuilt:
        return f". It cannot be built anew: {operator.never_rebuilt}"
    return f", or build the {operator.kind_name} anew from the log with `tidemark rebuild {operator.name}`"
