"""Rows of the lake that lie in a table as they are read, so that nobody has to compute them.

What an operator shows is found by its kind: `stored_rows`. All else that it shows is computed by Spark, from the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import (
    ADDED,
    AT,
    BATCH,
    COPY,
    DAY,
    ORIGIN,
    REASON,
    RETRACTED,
    REVISION,
    SIGN,
    WARNED,
    FrozenMapping,
    NoVersionError,
)
from streaming.declare import (
    CHANGES,
    CORRECTIONS,
    CURRENT,
    DEAD,
    ELEMENT,
    FAILED,
    FIRST,
    OPEN,
    PENDING,
    SUBSCRIPTIONS,
    UNMATCHED,
    UPDATES,
    VALID_FROM,
    Enriched,
    History,
    Joined,
    Keyed,
    Operator,
    OverWindows,
    Pipeline,
    Selected,
    Stream,
    TwoSided,
    View,
    Windowed,
    corrections_of,
)
from streaming.lake import Lake
from streaming.log import REPAIRS, RETRACTION, RETRACTS, check_as_of, head
from streaming.operators import Progress, check_followed, generation_of, open_beside, open_side, version_read
from streaming.tables import delta, rows_of

if TYPE_CHECKING:
    from pyarrow import dataset as ds

_SIGNED = "signed"
_CORRECTED = "_corrected"
_OF_GENERATION = "of_generation"
"""The number of a table of changes that says of which generation of the operator's tables they are."""


@dataclass(frozen=True)
class StoredRows:
    """Rows of one table, as they are shown: these `columns`, where the SQL `condition` is true, in this `order`.

    `computed` are those of the columns that the table does not have, each with its SQL and type. All SQL is DuckDB's,
    in which the table is called `rows`.
    """

    source: ds.Dataset | pa.Table
    columns: tuple[str, ...]
    order: tuple[str, ...] = ()
    condition: str = "true"
    computed: Mapping[str, tuple[str, pa.DataType]] = field(default_factory=lambda: FrozenMapping({}))

    @classmethod
    def of(cls, table: DeltaTable, order: Iterable[str] = ()) -> StoredRows:
        """All rows and columns of an open table."""
        source = rows_of(table)
        return cls(source, tuple(source.schema.names), tuple(order))

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        of = self.source.schema
        computed = {name: pa.field(name, kind) for name, (_, kind) in self.computed.items()}
        return pa.schema([computed.get(name) or of.field(name) for name in self.columns])


Found = Callable[[], StoredRows | None]
"""Finds rows; None where they are not stored, or not there."""


def stored_rows(lake: Lake, pipeline: Pipeline, operator: Operator, what: str = CURRENT) -> StoredRows | None:
    """The rows that `tidemark show` prints by the name `what`, where a table has them; None where Spark must say.

    Raises:
        LogError: the lake is read as of a batch of which nobody knows any more what there was.
        OperatorError: the operator does not follow the logs so far yet.
    """
    found = {**_of_operator(operator, lake), **_of_pipeline(lake, pipeline, operator.reads[0])}.get(what)
    try:
        return None if found is None else found()
    except NoVersionError:
        return None


def names_of_operator(lake: Lake, operator: Operator) -> tuple[str, ...]:
    """The names of what may be stored of an operator."""
    return tuple(_of_operator(operator, lake))


def names_of_pipeline(lake: Lake, pipeline: Pipeline, stream: Stream) -> tuple[str, ...]:
    """The names of what may be stored of a stream, and of the pipeline's deliveries and receivers."""
    return tuple(_of_pipeline(lake, pipeline, stream))


def _of_pipeline(lake: Lake, pipeline: Pipeline, stream: Stream) -> dict[str, Found]:
    now = lake.cut is None and lake.versions is None
    dead = {
        each.table_name(DEAD): partial(_whole, lake.table(each, DEAD), ("generation", "batch", "position"))
        for each in pipeline.deliveries
        if now
    }
    subscriptions = {
        each.table_name(SUBSCRIPTIONS): partial(_whole, lake.table(each, SUBSCRIPTIONS), ("first_seen",))
        for each in pipeline.receivers
        if now and each.subscriptions is not None
    }
    came = stream.revisions
    changes = {"changes": partial(_changes, lake, stream), "rows": partial(_rows, lake, stream)}
    of_revisions = changes if stream.revised else {}
    logs = {"log": partial(_log, lake, came), **of_revisions, "rejected": partial(_rejected, lake, came)}
    logs["warned"] = partial(_warned, lake, came)
    return {**logs, **dead, **subscriptions}


def _whole(uri: str, order: tuple[str, ...]) -> StoredRows | None:
    table = delta.open_table(uri)
    return None if table is None else StoredRows.of(table, order)


def _log(lake: Lake, stream: Stream) -> StoredRows | None:
    table = delta.open_table(lake.log(stream), lake.version_read(lake.log(stream)))
    if table is None:
        return None
    check_as_of(lake, stream)
    return _through(StoredRows.of(table, (BATCH, ORIGIN)), lake.batch_read(stream))


def _changes(lake: Lake, stream: Stream) -> StoredRows | None:
    """The changes of a stream with a key, each with its sign first."""
    log = _log(lake, stream)
    if log is None:
        return None
    sign = log.schema.field(ORIGIN).type.field("change").type
    return replace(log, columns=(SIGN, *log.columns), computed={SIGN: (f'"{ORIGIN}"."change"', sign)})


def _rows(lake: Lake, stream: Stream) -> StoredRows | None:
    """The rows of a stream with a key that stand, as they are now only."""
    table = None if lake.cut is not None or lake.versions is not None else delta.open_table(lake.standing(stream))
    if table is None:
        return None
    return replace(StoredRows.of(table, stream.key), columns=stream.columns, condition=f'rows."{ADDED}" is not null')


def _rejected(lake: Lake, stream: Stream) -> StoredRows | None:
    """The rejected rows of which no valid row says that it repairs them."""
    log = _log(lake, stream)
    if log is None:
        return None
    place = [each.name for each in log.schema.field(ORIGIN).type if each.name not in (REPAIRS, RETRACTION, RETRACTS)]
    same = " and ".join(f'(r."{ORIGIN}"."{name}" is not distinct from rows."{ORIGIN}"."{name}")' for name in place)
    repaired = (
        f'select 1 from rows r where r."{DAY}" is not null and r."{ORIGIN}"."{REPAIRS}" = rows."{BATCH}" and {same}'
    )
    # A repair that came after the batch as of which the log is read is none yet.
    until = log.condition.replace("rows.", "r.")
    condition = (
        f'{log.condition} and "{DAY}" is null and "_rejected" is not null and not exists ({repaired} and {until})'
    )
    return replace(log, columns=(BATCH, "_rejected", "_raw", ORIGIN), order=(BATCH,), condition=condition)


def _warned(lake: Lake, stream: Stream) -> StoredRows | None:
    """The rows that break a rule which only warns, with its name; none of a log without such a rule."""
    log = _log(lake, stream)
    if log is None or WARNED not in log.columns:
        return None
    own = [name for name in stream.columns if name in log.columns]
    condition = f'{log.condition} and "{WARNED}" is not null'
    return replace(log, columns=(BATCH, WARNED, *own, ORIGIN), order=(BATCH, ORIGIN), condition=condition)


def _through(rows: StoredRows, newest: int | None) -> StoredRows:
    """Those of the batches up to the newest one that is read."""
    return rows if newest is None else replace(rows, condition=f'{rows.condition} and rows."{BATCH}" <= {newest}')


@singledispatch
def _of_operator(operator: Operator, lake: Lake) -> dict[str, Found]:
    """The tables of an operator that are read as they are, by the names under which `tidemark show` has them."""
    return {}


@_of_operator.register
def _(operator: Windowed, lake: Lake) -> dict[str, Found]:
    order = ("window_start", *operator.by)
    opened = {OPEN: partial(_now, lake, operator, OPEN, order)}
    return {**_over_windows(operator, lake), UPDATES: partial(_updates, lake, operator, (*order, BATCH)), **opened}


@_of_operator.register
def _(operator: TwoSided, lake: Lake) -> dict[str, Found]:
    return _over_windows(operator, lake)


def _over_windows(operator: OverWindows, lake: Lake) -> dict[str, Found]:
    order = ("window_start", *operator.by)
    first = partial(_first_windows, lake, operator, order)
    return {
        CURRENT: partial(_current, lake, operator, (*operator.columns, DAY, _CORRECTED), order, first),
        FIRST: first,
        CORRECTIONS: partial(_now, lake, operator, CORRECTIONS, order),
    }


def _first_windows(lake: Lake, operator: OverWindows, order: tuple[str, ...]) -> StoredRows | None:
    table = _open(lake, operator)
    if table is None:
        return None
    rows = StoredRows.of(table, order)
    if lake.cut is None:
        return rows
    followed = Progress.of(operator, table).through
    for stream in operator.reads:
        check_followed(operator, followed[stream.name], head(lake, stream))
    at = Progress.at_heads(lake, operator)
    if at.watermark is None:
        return replace(rows, condition="false")
    closed = operator.window.closed_by(at.watermark)
    return replace(rows, condition=f"rows.window_end <= timestamptz '{closed.isoformat()}'")


def _updates(lake: Lake, view: Windowed, order: tuple[str, ...]) -> StoredRows | None:
    table = _open(lake, view, UPDATES)
    if table is None:
        return None
    rows = StoredRows.of(table, order)
    retracted = f'coalesce("{RETRACTED}", false)' if RETRACTED in rows.columns else "false"
    shown = replace(
        rows, columns=tuple(dict.fromkeys((*rows.columns, RETRACTED))), computed={RETRACTED: (retracted, pa.bool_())}
    )
    return _through(shown, lake.batch_read(view.of))


def _open(lake: Lake, operator: Operator, suffix: str = "", own: DeltaTable | None = None) -> DeltaTable | None:
    """A table of the operator, at the version at which the lake is read; `own` is its own one where that is open."""
    uri = lake.table(operator, suffix)
    if lake.versions is not None or not suffix:
        return delta.open_table(uri, lake.version_read(uri))
    return open_side(lake, operator, suffix) if own is None else open_beside(own, uri)


def _now(
    lake: Lake, operator: Operator, suffix: str, order: tuple[str, ...], own: DeltaTable | None = None
) -> StoredRows | None:
    """A table that is there as it is now only; `own` as for `_open`."""
    table = None if lake.cut is not None else _open(lake, operator, suffix, own)
    return None if table is None else StoredRows.of(table, order)


@_of_operator.register
def _(operator: Keyed, lake: Lake) -> dict[str, Found]:
    order = (AT, *operator.by)
    outputs = {to: partial(_as_read, lake, operator, to, order) for to in operator.output_schemas}
    if not operator.corrected:
        return {to or CURRENT: found for to, found in outputs.items()}
    columns = (*operator.by, AT, *operator.output_schemas[""].names, _CORRECTED, DAY)
    corrections = {
        each: partial(_now, lake, operator, each, order) for each in map(corrections_of, operator.output_schemas)
    }
    return {CURRENT: partial(_current, lake, operator, columns, order, outputs[""]), FIRST: outputs[""], **corrections}


@_of_operator.register
def _(operator: Joined, lake: Lake) -> dict[str, Found]:
    pairs = partial(_as_read, lake, operator, "", (BATCH, ORIGIN))
    if operator.signed:
        return {CURRENT: partial(_current_rows, lake, operator, (AT,)), _SIGNED: pairs}
    if not operator.outer_sides:
        return {CURRENT: pairs}
    unmatched = partial(_as_read, lake, operator, UNMATCHED, (BATCH, ORIGIN))
    return {CURRENT: partial(_current_rows, lake, operator, (AT, ORIGIN)), "pairs": pairs, UNMATCHED: unmatched}


@_of_operator.register
def _(operator: Selected, lake: Lake) -> dict[str, Found]:
    outputs = (*operator.outputs, *([FAILED] if operator.diverts else []))
    if operator.signed:
        # Which rows of another output stand has to be computed.
        return {CURRENT: partial(_current_rows, lake, operator, (AT,)), _SIGNED: partial(_selected, lake, operator, "")}
    return {to or CURRENT: partial(_selected, lake, operator, to) for to in outputs}


@_of_operator.register
def _(operator: History, lake: Lake) -> dict[str, Found]:
    order = (*operator.of.key, VALID_FROM)
    return {
        CURRENT: partial(_intervals, lake, operator, order),
        _SIGNED: partial(_signed, lake, operator, (BATCH, *order, SIGN)),
    }


def _signed(lake: Lake, history: History, order: tuple[str, ...]) -> StoredRows | None:
    table = _open(lake, history)
    if table is None:
        return None
    changed = replace(StoredRows.of(table, order), condition=f'rows."{SIGN}" <> 0')
    return _followed(lake, history, changed, table)


def _intervals(lake: Lake, history: History, order: tuple[str, ...]) -> StoredRows | None:
    current = _published(lake, history, order)
    return None if current is None else replace(current, columns=(*history.columns, DAY, REASON))


@_of_operator.register
def _(operator: View, lake: Lake) -> dict[str, Found]:
    return {
        CURRENT: partial(_of_view, lake, operator),
        _SIGNED: partial(_as_read, lake, operator, "", (BATCH, *operator.query.key, SIGN)),
    }


def _of_view(lake: Lake, view: View) -> StoredRows | None:
    current = _published(lake, view, view.query.key or view.columns)
    return None if current is None else replace(current, columns=(*view.columns, DAY, REASON))


@_of_operator.register
def _(operator: Enriched, lake: Lake) -> dict[str, Found]:
    return {to or CURRENT: partial(_enriched, lake, operator, to) for to in ("", FAILED, PENDING)}


def _as_read(lake: Lake, operator: Operator, suffix: str, order: tuple[str, ...]) -> StoredRows | None:
    """A table at the version that a reader of the lake sees."""
    table = _open(lake, operator, suffix)
    if table is None or lake.versions is not None:
        return None if table is None else StoredRows.of(table, order)
    version = version_read(lake, operator, table)
    return StoredRows.of(delta.opened(lake.table(operator, suffix), version), order)


def _selected(lake: Lake, selected: Selected, suffix: str) -> StoredRows | None:
    order = (BATCH, ORIGIN, *([ELEMENT] if selected.makes_many(suffix) else []))
    if len(selected.reads) > 1:
        return _as_read(lake, selected, suffix, order)
    table = _open(lake, selected, suffix)
    return None if table is None else _followed(lake, selected, StoredRows.of(table, order), table)


def _enriched(lake: Lake, enriched: Enriched, suffix: str) -> StoredRows | None:
    own, table = (_open(lake, enriched, each) for each in ("", suffix))
    return None if table is None else _followed(lake, enriched, StoredRows.of(table, (BATCH, ORIGIN)), own)


def _followed(lake: Lake, operator: Operator, rows: StoredRows, progress: DeltaTable | None) -> StoredRows:
    """The rows of batches of the one log that the operator reads, up to that as of which the lake is read."""
    (stream,) = operator.reads
    if lake.cut is None:
        return rows
    newest = head(lake, stream)
    check_followed(operator, Progress.of(operator, progress).through[stream.name], newest)
    return _through(rows, -1 if newest is None else newest.number)


def _current(
    lake: Lake, operator: Operator, columns: tuple[str, ...], order: tuple[str, ...], first: Found
) -> StoredRows | None:
    """The table of current results, or the first results while nothing else stands for any of them."""
    current = _published(lake, operator, order)
    if current is not None:
        return replace(current, columns=columns, computed={_CORRECTED: (f"{REASON} <> 'first'", pa.bool_())})
    if lake.cut is not None or any(_open(lake, operator, each) is not None for each in (CORRECTIONS, UPDATES)):
        return None
    rows = first()
    return None if rows is None else replace(rows, columns=columns, computed={_CORRECTED: ("false", pa.bool_())})


def _published(lake: Lake, operator: Operator, order: tuple[str, ...]) -> StoredRows | None:
    """The table of current results, unless the operator was built anew since and nobody has looked at it yet."""
    own = _open(lake, operator)
    changes = _open(lake, operator, CHANGES, own)
    if changes is not None and (changes.transaction_version(_OF_GENERATION) or 0) != generation_of(own):
        return None
    return _now(lake, operator, CURRENT, order, own)


def _current_rows(lake: Lake, operator: Operator, order: tuple[str, ...]) -> StoredRows | None:
    current = _published(lake, operator, order)
    if current is None:
        return None
    added = {COPY, REASON, REVISION}
    return replace(current, columns=tuple(name for name in current.columns if name not in added))
