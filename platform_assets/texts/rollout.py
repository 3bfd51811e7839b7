"""The rollout of a pipeline's declarations in lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from platform_assets.texts.lateness import length
from streaming.base import counted
from streaming.operations import Replay, RolloutPart, Volume

_SIGNS = {"new": "+", "changed": "~", "adopted": "~", "gone": "-", "unchanged": " "}
_UNITS = ((2**30, "GB"), (2**20, "MB"), (2**10, "kB"))


def part_lines(part: RolloutPart) -> Iterator[str]:
    """The lines about one part: what it is, what changes, what that takes, and what follows."""
    name = part.name if part.kind == "table" else f"{part.kind} {part.name}"
    yield f"{_SIGNS[part.state]} {name}: {_head(part)}"
    for change in part.changes:
        yield from (f"    {line}" for line in change.splitlines())
    if part.advice:
        yield f"    {part.advice}"
    if part.published and part.action == "rebuild":
        state = f", {counted(part.state_rows, 'row')} of state" if part.state_rows else ""
        yield f"    {counted(part.published, 'row')} published{state}; they are read until the new ones are in place"
    if part.reads is not None:
        yield f"    reads {volume_text(part.reads)}; {_time(part)}"
    yield from (f"    {follower}" for follower in part.followers)


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
    told = {name: [_change(row, name) for row in rows] for name in values}
    texts = {name: pa.array(column, pa.string()) for name, column in told.items()}
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
