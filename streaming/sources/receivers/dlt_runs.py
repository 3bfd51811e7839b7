"""One run of a dlt resource, without a pipeline: from a state, to rows in JSON and the state behind them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time
from enum import Enum
from itertools import islice
from typing import Any
from uuid import UUID

import pyarrow as pa
import simplejson
from dlt.common.configuration.container import Container
from dlt.common.json import json as typed_json
from dlt.common.pipeline import StateInjectableContext
from dlt.extract import DltResource

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import Received

_AT_ONCE = 1_000


def run(make: Callable[[], Any], address: str, cursor: Any) -> Generator[Received, None, Any]:
    """The rows in portions, then the cursor of the state behind them, which is returned as well.

    `cursor`: that of the run before, None at first.

    Raises:
        ReceiverError: it is no resource, it fails, or a value cannot be told in JSON.
    """
    state = {} if cursor is None else typed_json.typed_loads(json.dumps(cursor))
    try:
        rows = _rows(_opened(make(), address, state))
        while portion := list(islice(rows, _AT_ONCE)):
            yield Received([_in_json(row, address) for row in portion])
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


def _rows(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, pa.Table | pa.RecordBatch):
            yield from item.to_pylist()
        elif hasattr(item, "to_dict") and hasattr(item, "columns"):
            yield from pa.Table.from_pandas(item, preserve_index=False).to_pylist()
        else:
            yield item


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
    if isinstance(value, datetime | date | time):
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
