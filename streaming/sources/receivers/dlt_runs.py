"""One run of a dlt resource, without a pipeline: from a state, to rows in JSON and the state behind them."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from datetime import date, datetime
from datetime import time as time_of_day
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

import pyarrow as pa
import simplejson
from dlt.common.configuration.container import Container
from dlt.common.json import json as typed_json
from dlt.common.pipeline import StateInjectableContext
from dlt.extract import DltResource, Incremental
from dlt.extract.incremental import IncrementalResourceWrapper
from dlt.extract.pipe import Pipe

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE, PORTION_BYTES, PORTION_ROWS, Received

_NEWEST: dict[str, _Run] = {}
"""The newest run of each resource in this process; where nobody takes its rows any more, it may wait for its API."""
_STARTING = threading.Lock()


def run_aside(make: Callable[[], Any], address: str, cursor: Any) -> Generator[Received, None, Any]:
    """The rows, the cursor and the return value of `run`, which goes on in a thread of its own.

    Something comes every `IDLE` seconds, also while the resource waits. To end, the generator is closed: the run then
    ends with the next portion that it has, which nobody takes.

    Raises:
        ReceiverError: as `run`.
    """
    while (going_on := _started(make, address, cursor)) is None:
        yield Received(stands=False)
    try:
        return (yield from going_on.portions())
    finally:
        going_on.leave()


def _started(make: Callable[[], Any], address: str, cursor: Any) -> _Run | None:
    """The run, started; None after `IDLE` seconds of another run of this resource that goes on.

    A resource may keep objects of its own, such as an incremental, which two runs would share.
    """
    # Receivers of a pipeline are threads of one process, and several may run one resource.
    with _STARTING:
        newest = _NEWEST.get(address)
        if newest is None or not newest.is_alive():
            going_on = _NEWEST[address] = _Run(make, address, cursor)
            going_on.start()
            return going_on
    newest.join(IDLE)
    return None


class _Run(threading.Thread):
    """A run that puts a portion together when somebody asks for it, so that no more than one is in memory."""

    def __init__(self, make: Callable[[], Any], address: str, cursor: Any) -> None:
        # A process that ends does not wait for somebody's API.
        super().__init__(name=address, daemon=True)
        self._left = False
        self._resource = (make, address, cursor)
        self._asked = threading.Semaphore(0)
        self._portions: SimpleQueue[Received | BaseException | None] = SimpleQueue()

    def run(self) -> None:
        """Hand on a portion for each question, and at last None, or the error."""
        try:
            with closing(run(*self._resource)) as portions:
                while self._is_asked():
                    self._portions.put(next(portions, None))
        # Who takes the rows raises it.
        except BaseException as error:
            self._portions.put(error)

    def leave(self) -> None:
        """Let it end with what it is at, as nobody asks any more."""
        self._left = True
        self._asked.release()

    def _is_asked(self) -> bool:
        """True once somebody asks for the next portion, false once nobody will."""
        self._asked.acquire()
        return not self._left

    def portions(self) -> Generator[Received, None, Any]:
        """The portions as they come, none for a while as one that stands not; returns the cursor of the last one."""
        cursor = None
        while True:
            self._asked.release()
            while True:
                try:
                    portion = self._portions.get(timeout=IDLE)
                    break
                except Empty:
                    yield Received(stands=False)
            if portion is None:
                return cursor
            if isinstance(portion, BaseException):
                raise portion
            cursor = portion.cursor
            yield portion


def run(make: Callable[[], Any], address: str, cursor: Any) -> Generator[Received, None, Any]:
    """The rows in portions, then the cursor of the state behind them, which is returned as well.

    `cursor`: that of the run before, None at first.

    Raises:
        ReceiverError: it is no resource, it fails, or a value cannot be told in JSON.
    """
    state = {} if cursor is None else typed_json.typed_loads(json.dumps(cursor))
    try:
        resource = make()
        rows = _rows(_opened(resource, address, state))
        _check_ranges(resource, address)
        yield from _portions(_in_json(row, address) for row in rows)
        # A transformer tells its own with its first row only.
        _check_ranges(resource, address)
    except ReceiverError:
        raise
    # What a resource raises is its author's choice.
    except Exception as error:
        raise ReceiverError(
            f"{address} fails ({_reason(error)}); nothing of this run has landed, and it is made again."
        ) from error
    behind = json.loads(typed_json.typed_dumps(state))
    yield Received(cursor=behind)
    return behind


def _opened(resource: Any, address: str, state: dict[str, Any]) -> Iterator[Any]:
    if not isinstance(resource, DltResource):
        raise ReceiverError(
            f"{address} returns {resource!r}, a {type(resource).__name__}; return a DltResource, such as one of a "
            "source's, source.resources['issues']."
        )
    # A state that is injected is written to, as by dlt's own pipelines; without one it would be thrown away.
    with Container().injectable_context(StateInjectableContext(state=state)):  # type: ignore[arg-type]
        return iter(resource)


def _check_ranges(resource: DltResource, address: str) -> None:
    """Refuse an incremental with an end, for which dlt keeps no state, so that each run would give its rows again."""
    pipe: Pipe | None = resource._pipe
    while pipe is not None:
        step: Any = pipe.get_by_type(IncrementalResourceWrapper, Incremental)
        incremental = step.incremental if isinstance(step, IncrementalResourceWrapper) else step
        if incremental is not None and incremental.end_value is not None:
            raise ReceiverError(
                f"{address} reads {pipe.name!r} by {incremental.cursor_path!r} up to end_value="
                f"{incremental.end_value!r}, of which dlt keeps no state, so each run would land the same rows again; "
                "leave end_value out, and cut long runs by add_limit."
            )
        pipe = pipe.parent


def _rows(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, pa.Table | pa.RecordBatch):
            table = item if isinstance(item, pa.Table) else pa.Table.from_batches([item])
        elif hasattr(item, "to_dict") and hasattr(item, "columns"):
            table = pa.Table.from_pandas(item, preserve_index=False)
        else:
            yield item
            continue
        for batch in table.to_batches(max_chunksize=PORTION_ROWS):
            yield from batch.to_pylist()


def _portions(rows: Iterable[bytes]) -> Iterator[Received]:
    """Rows by number and size, and however few once they come slowly, so that the receiver can stop between them."""
    portion, size, began = list[bytes](), 0, time.monotonic()
    for row in rows:
        portion.append(row)
        size += len(row)
        if len(portion) >= PORTION_ROWS or size >= PORTION_BYTES or time.monotonic() - began >= IDLE:
            yield Received(portion)
            portion, size, began = [], 0, time.monotonic()
    if portion:
        yield Received(portion)


def _in_json(row: Any, address: str) -> bytes:
    try:
        # Without an encoding bytes are no texts. What is NaN is rejected by the stream, where it can be seen.
        text: str = simplejson.dumps(row, default=_told, encoding=None, ensure_ascii=False, allow_nan=True)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise ReceiverError(
            f"{address} gives a row that JSON cannot tell ({error}): {repr(row)[:200]}; let it give other values, as "
            "by resource.add_map."
        ) from error


def _told(value: Any) -> Any:
    """A value that JSON has no word for."""
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)
    with suppress(AttributeError):
        # A model of pydantic.
        return value.model_dump()
    raise TypeError(f"a {type(value).__name__}")


def _reason(error: BaseException) -> str:
    """The words of what was raised first: dlt wraps it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
