"""The work of Spark's Python workers in a step: write what was selected into the files of all outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from streaming.base import (
    AT,
    BATCH,
    DAY,
    ORIGIN,
    WRITTEN_AT,
    FunctionError,
    arrow_schema,
    computes_as_sql,
    encoder,
    python_values,
    raised,
    row_class,
)
from streaming.declare import ELEMENT, FAILED, RowFunction
from streaming.operators import FilterCounts
from streaming.tables import TaskFile, TaskFiles

WRITTEN = (
    "suffix string, rows_in bigint, kept bigint, "
    "path string, size bigint, rows bigint, day string, statistics string, error string"
)
"""The report of a task: what it counted for each output, each of its files, or why it failed."""

_REPORT = pa.schema(
    [
        ("suffix", pa.string()),
        *((name, pa.int64()) for name in ("rows_in", "kept")),
        ("path", pa.string()),
        *((name, pa.int64()) for name in ("size", "rows")),
        *((name, pa.string()) for name in ("day", "statistics", "error")),
    ]
)


@dataclass(frozen=True)
class WriteOutputs:
    """Write those outputs of selection `name` that have a place in `uris`, by suffix; `order` is that of the columns.

    `batch`: the number that all rows get, null where each has its own. `by_day`: each day has files of its own.
    """

    name: str
    order: tuple[str, ...]
    uris: Mapping[str, str]
    schemas: Mapping[str, pa.Schema]
    function: RowFunction | None
    batch: int | None
    written_at: int
    by_day: bool = True

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = {to: TaskFiles(uri, self.schemas[to], (AT, BATCH)) for to, uri in self.uris.items()}
        counts = dict.fromkeys(self.uris, FilterCounts())
        error = None
        # The function is told of its error, and may not make it vanish. Raised further, it would come back as a text
        # within Spark's own traces.
        with suppress(FunctionError), self._opened() as applied:
            try:
                for batch in batches:
                    for to, candidates, rows in selected_of(self.order, batch, applied):
                        if to in files:
                            counts[to] += self._write(to, candidates, rows, files[to])
            except FunctionError as raised:
                error = str(raised)
                raise
        if error is not None:
            yield pa.RecordBatch.from_pylist([{"error": error}], schema=_REPORT)
            return
        report: list[dict[str, Any]] = [{"suffix": to, **asdict(each)} for to, each in counts.items()]
        report += [{"suffix": to, **vars(file)} for to, each in files.items() for file in each.close()]
        yield pa.RecordBatch.from_pylist(report, schema=_REPORT)

    def _opened(self) -> AbstractContextManager[_Applied | None]:
        # For which rows it raises, the other outputs depend on, too, where such rows go to one of their own.
        if self.function is None or ("" not in self.uris and FAILED not in self.order):
            return nullcontext()
        return _opened(self.name, self.function, _task())

    def _write(self, to: str, candidates: pa.Array, rows: pa.RecordBatch, files: TaskFiles) -> FilterCounts:
        if self.by_day:
            for day, of_day in _by_day(rows):
                files.write(self._completed(to, of_day), day)
        else:
            files.write(self._completed(to, rows))
        return FilterCounts(len(candidates), len(candidates) - candidates.null_count)

    def _completed(self, to: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns of their table, in order and of its types."""
        schema = self.schemas[to]
        given: dict[str, int] = {WRITTEN_AT: self.written_at}
        if self.batch is not None:
            given[BATCH] = self.batch
        columns = [
            pa.repeat(pa.scalar(given[field.name], field.type), rows.num_rows)
            if field.name in given
            else rows.column(field.name).cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class ApplyFunction:
    """Hand on what becomes of the rows of selection `name`, in the columns of `schema`; nothing is written."""

    name: str
    function: RowFunction
    schema: pa.Schema

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _opened(self.name, self.function, _task()) as applied:
            for batch in batches:
                yield _handed_on(applied(batch), self.schema)


@dataclass(frozen=True)
class HandOn:
    """Hand on what goes to one output of selection `name`, in the columns of `schema`; nothing is written."""

    name: str
    order: tuple[str, ...]
    to: str
    function: RowFunction | None
    schema: pa.Schema

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with nullcontext() if self.function is None else _opened(self.name, self.function, _task()) as applied:
            for batch in batches:
                rows = next(rows for to, _, rows in selected_of(self.order, batch, applied) if to == self.to)
                yield _handed_on(rows, self.schema)


def selected_of(
    order: Sequence[str], batch: pa.RecordBatch, applied: _Applied | None
) -> Iterator[tuple[str, pa.Array, pa.RecordBatch]]:
    """The outputs of a batch of `select_all`: for each, what came to its filter, null where removed, and its rows.

    Rows that cannot be computed, if there is an output for them, came to no other.
    """
    columns: dict[str, pa.Array] = dict(zip(order, batch.columns, strict=True))
    if FAILED not in columns:
        for to, column in columns.items():
            # Of a row that is exploded, each element came to the filter.
            candidates = column.flatten() if pa.types.is_list(column.type) else column
            rows = pa.RecordBatch.from_struct_array(candidates.drop_null())
            yield to, candidates, rows if to or applied is None else applied(rows)
        return
    failed = columns.pop(FAILED)
    errors = pc.struct_field(failed, "error").to_pylist()
    results = None
    if applied is not None:
        own = columns[""]
        is_kept = own.is_valid().to_pylist()
        places = [place for place, error in enumerate(errors) if error is None and is_kept[place]]
        raised: dict[int, str] = {}
        results = applied(pa.RecordBatch.from_struct_array(own.take(pa.array(places, pa.int64()))), raised)
        for place, error in raised.items():
            errors[places[place]] = error
    computed = pa.array([error is None for error in errors], pa.bool_())
    for to, column in columns.items():
        of_computed = column.filter(computed)
        candidates = of_computed.flatten() if pa.types.is_list(column.type) else of_computed
        rows = pa.RecordBatch.from_struct_array(candidates.drop_null())
        yield to, candidates, rows if to or results is None else results
    diverted = failed.filter(pc.invert(computed))
    rows = pa.RecordBatch.from_struct_array(diverted)
    told = pa.array([error for error in errors if error is not None], pa.string())
    yield FAILED, diverted, rows.set_column(rows.schema.get_field_index("error"), "error", told)


def of_report(row: Any) -> TaskFile | FilterCounts:
    """The file, or the counts, that a row of a report tells of."""
    if row["path"] is None:
        return FilterCounts(row["rows_in"], row["kept"])
    return TaskFile(row["path"], row["size"], row["rows"], row["day"], row["statistics"])


def _handed_on(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns of a schema, and their day."""
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays([*columns, rows.column(DAY)], names=[*schema.names, DAY])


def _task() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    days = rows.column(DAY)
    unique = pc.unique(days).to_pylist()
    for day in unique:
        yield day, rows if len(unique) == 1 else rows.filter(pc.equal(days, day))


@contextmanager
def _opened(of: str, function: RowFunction, task: int) -> Iterator[_Applied]:
    """The function of the selection `of`, open for the rows of a task; it is closed whatever happens to them."""
    with nullcontext() if function.opens is None else function.opens(task) as given:
        yield _Applied(of, function, given)


class _Applied:
    """A function that is open: called with rows, it gives those that become of them, with where these are from."""

    def __init__(self, of: str, function: RowFunction, given: Any) -> None:
        self._of = of
        self._function = function
        self._given = given
        self._kind = pa.struct(list(arrow_schema(function.returns)))
        self._encode = encoder(self._kind)

    def __call__(self, rows: pa.RecordBatch, failed: dict[int, str] | None = None) -> pa.RecordBatch:
        """The columns that the function returns, those of `rows` that tell where a row is from, and `_element`.

        Where `failed` is given, it gets the error of each row for which the function raised, by the row's place.

        Raises:
            FunctionError: the function raised, or gave what is not declared.
        """
        names = tuple(name for name in rows.schema.names if not name.startswith("_"))
        added = [name for name in rows.schema.names if name not in names]
        as_row = partial(tuple.__new__, row_class(names))
        columns = [python_values(rows.column(name)) for name in names]
        results: list[Any] = []
        sources: list[int] = []
        elements: list[int] = []
        for place, row in enumerate(map(as_row, zip(*columns, strict=True))):
            try:
                given = self._of_row(row, rows, place)
            except FunctionError as error:
                if failed is None:
                    raise
                assert isinstance(error.__cause__, Exception)
                failed[place] = raised(error.__cause__)
                continue
            results += given
            sources += [place] * len(given)
            elements += range(len(given))
        values = pa.RecordBatch.from_struct_array(pa.array(results, self._kind))
        origins = rows.select(added).take(pa.array(sources, pa.int64()))
        numbers = pa.array(elements, pa.int32())
        columns = [*values.columns, *origins.columns, numbers]
        return pa.RecordBatch.from_arrays(columns, names=[*values.schema.names, *added, ELEMENT])

    def _of_row(self, row: Any, rows: pa.RecordBatch, place: int) -> list[Any]:
        try:
            given = list(self._function.apply(row, self._given))
            if any(each is None for each in given):
                raise ValueError("it gave None in place of a row")
            return [self._encode(each) for each in given]
        # Whatever a user's function raises is told with the row that it was called for.
        except (Exception, SystemExit) as error:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(row.columns_, row, strict=True))
            batch, origin = (python_values(rows.column(name).slice(place, 1))[0] for name in (BATCH, ORIGIN))
            raise FunctionError(
                f"function {self._function.name} of selection {self._of!r} failed for the row ({values}) of batch "
                f"{batch}, from {origin!r}: {raised(error)}. Nothing of its step was written; correct it and run "
                "again, leave such rows out with `where`, or send them to a side output with on_error='side'."
            ) from error
