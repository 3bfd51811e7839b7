"""The rows of a case, and the hostile one among them with the verdict that the log must give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

from tests.support.fuzz.drawing import HOSTILE, Source
from tests.support.fuzz.expressions import FAR, Failed, Row
from tests.support.fuzz.values import Hostility, Value, hostile, ordinary
from tests.support.instants import at

_ROWS = 12
_DAMAGED = (b"", b"{", b"\xff\xfe", b"[]", b"null", b"{} {}", b"{}", b'{"uid": "hostile", "uid": "hostile"}', b"\x00")
_TIMES = (
    Hostility("year 1", '"0001-01-01T00:00:00Z"', datetime.min.replace(tzinfo=UTC)),
    Hostility("year 9999", '"9999-12-31T23:59:59.999999Z"', datetime.max.replace(tzinfo=UTC)),
    Hostility("extreme", '"0100-01-01T00:00:00Z"', datetime(100, 1, 1, tzinfo=UTC)),
    Hostility("extreme", '"1969-12-31T23:59:59.999999Z"', datetime(1970, 1, 1, tzinfo=UTC) - timedelta.resolution),
    Hostility("null", "null"),
    Hostility("wrong type", "1767225600", readable=False),
    Hostility("empty", '""', readable=False),
)
_FIRST, _END = datetime(100, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 12, tzinfo=UTC)
"""Of event times: the first that there may be, and the last that is not too far ahead of when the rows are taken in."""

Batches = tuple[list[bytes], list[bytes]]


@dataclass(frozen=True)
class HostileRow:
    """The hostile row: in which batch of which stream it comes, and where; `row` is what can be read of it.

    `reason` is part of a reason against it, None where it is valid; with `row` None nothing can be read of it.
    """

    stream: str
    batch: int
    place: int
    kind: str
    column: str
    payload: bytes
    row: Row | None
    reason: str | None


def batches(random: Random, source: Source, keys: Sequence[Value]) -> Batches:
    """Two batches of ordinary rows; some of the second are late."""
    made = []
    for batch in range(2):
        lines = []
        for number in range(_ROWS):
            seconds = random.uniform(30 * batch, 30 * batch + 29)
            if batch == 1 and number % 4 == 3:
                seconds = random.uniform(0, 12)
            # The last one is the latest of its batch, so that no hostile row moves the clock.
            time = at(30 * (batch + 1) if number == _ROWS - 1 else round(seconds, 1))
            fields = {"uid": _text(f"{source.stream.name}{batch}_{number}"), "at": _text(time.isoformat())}
            lines.append(_payload({**fields, "k": random.choice(keys).text, **_ordinary(random, source)[0]}))
        made.append(lines)
    return made[0], made[1]


def hostile_row(random: Random, sources: Sequence[Source], keys: Sequence[Value]) -> HostileRow:
    """A row that is ordinary but for one value, or a payload that is none."""
    source, batch, place = random.choice(sources), random.randrange(2), random.randrange(_ROWS)
    where = (source.stream.name, batch, place)
    if random.random() < 0.1:
        return HostileRow(*where, "damaged", "", random.choice(_DAMAGED), None, "")
    key = random.choice(keys)
    texts, values = _ordinary(random, source)
    time = at(round(random.uniform(0, 29) + 30 * batch * (random.random() < 0.7), 1))
    texts = {"uid": _text(HOSTILE), "at": _text(time.isoformat()), "k": key.text, **texts}
    values = {"uid": HOSTILE, "at": time, "k": key.value, **values}
    column = "at" if random.random() < 0.1 else random.choice([*source.types])
    drawn = random.choice(_TIMES) if column == "at" else hostile(random, source.types[column])
    texts[column], values[column] = drawn.text, drawn.value
    if drawn.text == "null" and random.random() < 0.5:
        del texts[column]
    payload = _payload(texts)
    path = f"{column}{drawn.path}"
    if drawn.readable:
        return HostileRow(*where, drawn.kind, path, payload, values, reason_against(source, values))
    # Where something else cannot be read, too, depends on how deep the reader looks.
    return HostileRow(*where, drawn.kind, path, payload, None, "" if drawn.whole or drawn.kind == "deep" else path)


def reason_against(source: Source, row: Row) -> str | None:
    """Part of what the log must say against a row that can be read; None where it is valid."""
    stream = source.stream
    for column in stream.format.columns:
        if column.required and row[column.name] is None:
            return column.name
    for name, expression in source.derived.items():
        try:
            if _is_far(expression.of(row)):
                return f"derived: {name} has"
        except Failed:
            return f"derived: {name} cannot be computed"
    time = row["at"]
    if time is None or not _FIRST <= time <= _END:
        return "at"
    for name, rule in source.rules.items():
        try:
            if rule.of(row) is not True:
                return f"{name}: not"
        except Failed:
            return f"{name}: cannot be judged"
    return None


def _is_far(value: Any) -> bool:
    return value is FAR


def _ordinary(random: Random, source: Source) -> tuple[dict[str, str], dict[str, Any]]:
    made = {name: ordinary(random, of) for name, of in source.types.items() if name != "k"}
    return {name: each.text for name, each in made.items()}, {name: each.value for name, each in made.items()}


def _text(value: str) -> str:
    return json.dumps(value)


def _payload(fields: Mapping[str, str]) -> bytes:
    return f"{{{', '.join(f'{_text(name)}: {text}' for name, text in fields.items())}}}".encode()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_stored(value: Any, of: Any) -> Any:
    """A value of a type in the form in which tables are read: instants in microseconds, maps as dicts."""
    if value is None:
        return None
    match of.kind:
        case "timestamp":
            return (value - _EPOCH) // timedelta(microseconds=1)
        case "map":
            return {name: as_stored(each, of.parts[""]) for name, each in value}
        case "array":
            return [as_stored(each, of.parts[""]) for each in value]
        case "struct":
            return {name: as_stored(value[name], part) for name, part in of.parts.items()}
        case "date":
            assert isinstance(value, date)
    return value
