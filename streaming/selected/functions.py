"""A function of a user over the rows of a batch, one after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pyarrow as pa

from streaming.base import BATCH, ORIGIN, FunctionError, arrow_schema, encoder, python_values, raised
from streaming.declare import ELEMENT, RowFunction
from streaming.keyed import row_class


@contextmanager
def opened(of: str, function: RowFunction, task: int) -> Iterator[Applied]:
    """The function of the selection `of`, open for the rows of a task; it is closed whatever happens to them."""
    with nullcontext() if function.opens is None else function.opens(task) as given:
        yield Applied(of, function, given)


class Applied:
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
