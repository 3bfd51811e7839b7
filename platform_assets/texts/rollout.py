"""The rollout of a pipeline's declarations in lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from platform_assets.texts.lateness import length
from streaming.base import counted, told
from streaming.operations import Replay, RolloutPart, Volume
from streaming.reading import ResultKeys, key_as_typed

_SIGNS = {"new": "+", "changed": "~", "adopted": "~", "gone": "-", "unchanged": " "}
_UNITS = ((2**30, "GB"), (2**20, "MB"), (2**10, "kB"))


def part_lines(part: RolloutPart, keys: ResultKeys | None = None) -> Iterator[str]:
    """The lines about one part: what it is, what changes, what that takes, and what follows.

    `keys` are those of the results that it has now.
    """
    name = part.name if part.kind == "table" else f"{part.kind} {part.name}"
    yield f"{_SIGNS[part.state]} {name}: {_head(part)}"
    for change in part.changes:
        yield from (f"    {line}" for line in change.splitlines())
    if part.advice:
        yield f"    {part.advice}"
    if part.published and part.action == "rebuild":
        state = f", {counted(part.state_rows, 'row')} of state" if part.state_rows else ""
        yield f"    {counted(part.published, 'row')} published{state}; they are read until the new ones are in place"
    if keys is not None and (keys.number or keys.times):
        yield f"    of {keys_text(keys)}"
    if part.reads is not None:
        yield f"    reads {volume_text(part.reads)}; {_time(part)}"
    yield from (f"    {follower}" for follower in part.followers)


def keys_text(keys: ResultKeys) -> str:
    """`1,200 keys, such as meter=m1, meter=m2; 24 windows, 2026-03-02 00:00:00 to 2026-03-03 00:00:00`."""
    parts = []
    if keys.number:
        every = "" if keys.number == len(keys.few) else "such as "
        parts.append(f"{counted(keys.number, 'key')}, {every}{', '.join(map(key_as_typed, keys.few))}")
    if keys.times:
        what = "window" if keys.of_windows else "instant"
        parts.append(f"{counted(keys.times, what)}, {told(keys.first)} to {told(keys.last)}")
    return "; ".join(parts)


def volume_text(volume: Volume) -> str:
    """`1,234 rows (56 kB) of 2 days, 2013-01-01 to 2013-01-02`."""
    text = f"{counted(volume.rows, 'row')} ({_size(volume.bytes)})"
    if volume.first is None:
        return text
    span = f"{volume.first}" if volume.first == volume.last else f"{volume.first} to {volume.last}"
    return f"{text} of {counted(volume.days, 'day')}, {span}"


def side_by_side(found: Replay) -> pa.Table:
    """The results of a replay as texts: outcome and key, then each value as `before → after` where it differs."""
    values = dict.fromkeys(name.removesuffix(" before").removesuffix(" after") for name in found.values)
    rows = found.rows.to_pylist()
    changes = {name: [_change(row, name) for row in rows] for name in values}
    texts = {name: pa.array(column, pa.string()) for name, column in changes.items()}
    return pa.table({**{name: found.rows[name] for name in ("outcome", *found.key)}, **texts})


def _change(row: dict[str, Any], name: str) -> str:
    before, after = (row.get(f"{name} {side}") for side in ("before", "after"))
    one, other = ("" if value is None else str(value) for value in (before, after))
    return one if one == other else f"{one} → {other}".strip()


def _head(part: RolloutPart) -> str:
    actions = {"rebuild": "to be built anew", "redeliver": "waits for a word", "refused": "refused", "run": "next run"}
    action = actions.get(part.action)
    return part.state if action is None else f"{part.state}, {action}"


def _time(part: RolloutPart) -> str:
    if part.rate is None or part.seconds is None:
        return "how long that takes nobody has measured here: a stream that runs on and on records it"
    pace = f"{part.rate.per_second:,.0f} rows a second, measured over {counted(part.rate.steps, 'step')}"
    about = f"about {length(timedelta(seconds=part.seconds))} at {pace} of {part.rate.of}"
    return (
        f"{about}, the slowest operator that was measured, as nobody has this one" if part.rate.is_estimate else about
    )


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:,.0f} {name}"
    return counted(size, "byte")
