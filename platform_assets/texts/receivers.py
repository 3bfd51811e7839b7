"""Receivers that run, as a table and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from platform_assets.texts.status import length
from streaming.base import counted
from streaming.service import ReceiverStatus

_COLOURS = {"receiving": "green", "waiting": "yellow", "connecting": "yellow", "stopped": "dim"}


def receiver_table(receivers: Iterable[ReceiverStatus], now: datetime) -> Table:
    """Two lines per receiver; counts are since its start."""
    table = Table(box=SIMPLE_HEAD, title="receivers", title_justify="left", show_edge=False)
    for name in ("receiver", "state"):
        table.add_column(name)
    for name in ("received", "landed", "put aside"):
        table.add_column(name, justify="right")
    for status in receivers:
        state = Text.assemble((status.state, _COLOURS.get(status.state, "")))
        if status.state != "stopped":
            state.append(f"\n{length((now - (status.away_since or status.since)).total_seconds())}")
        table.add_row(
            f"{status.name}\n{status.address}",
            state,
            f"{counted(status.rows, 'row')}\n{status.unlanded:,} not landed{_behind(status)}",
            f"{status.landed:,} in {counted(status.files, 'file')}\n{status.guarantee}",
            f"{status.refused:,} refused\n{counted(status.reconnects, 'reconnect')}{_lost(status, now)}",
        )
    return table


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MB"


def _behind(status: ReceiverStatus) -> str:
    """The bytes that the source keeps for the receiver, where it tells."""
    return "" if status.behind is None else f"\n{_megabytes(status.behind)} behind"


def _lost(status: ReceiverStatus, now: datetime) -> str:
    """The time since the source was last seen to have lost rows."""
    return "" if status.lost_at is None else f"\nlost rows {length((now - status.lost_at).total_seconds())} ago"


def receiver_line(status: ReceiverStatus) -> str:
    """The state of a receiver, in one line."""
    parts = [
        f"{status.name}: {status.state}",
        f"{counted(status.rows, 'row')} from {status.address}",
        f"{status.landed:,} landed in {counted(status.files, 'file')}",
    ]
    if status.left_behind:
        parts.append(f"{status.left_behind:,} more that a process before it left behind")
    if status.refused:
        parts.append(f"{status.refused:,} refused as too large or cut off")
    if status.behind is not None:
        parts.append(f"{_megabytes(status.behind)} behind")
    if status.lost_at is not None:
        parts.append(f"lost rows at {status.lost_at:%Y-%m-%d %H:%M:%S} UTC ({status.lost})")
    return ", ".join(parts) + (f"; {status.why}" if status.why else "")
