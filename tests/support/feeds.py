"""Input as data: batches of payloads, landed the way a careful source system lands them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from streaming.declare.stream import Stream
from streaming.lake.lake import Lake
from tests.support.instants import T0, at, ms

Payload = Mapping[str, Any] | str | bytes


def readings(timeline: str) -> list[dict[str, Any]]:
    """Sensor readings in the notation `a@3.5=20, b@4`: key, seconds after T0, temperature (null if not given)."""
    rows = []
    for entry in timeline.split(","):
        key, _, rest = entry.strip().partition("@")
        seconds, _, value = rest.partition("=")
        rows.append({"id": key, "timestamp": ms(at(float(seconds))), "temperature": float(value) if value else None})
    return rows


def line(payload: Payload) -> bytes:
    """The bytes of one line: a mapping as JSON, text and bytes as they are."""
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()


def land(
    folder: str | Path, payloads: Iterable[Payload], *, name: str | None = None, modified: datetime | None = None
) -> Path:
    """Land one batch as one file: written under a hidden name, then renamed, and later than every file before it."""
    landing = Path(folder)
    landing.mkdir(parents=True, exist_ok=True)
    there = [entry.stat().st_mtime for entry in landing.iterdir()]
    target = landing / (name or f"{len(there):04}.json")
    hidden = target.with_name(f".{target.name}")
    hidden.write_bytes(b"".join(line(payload) + b"\n" for payload in payloads))
    # Spark takes files in order of modification time.
    later = max([T0.timestamp(), *there]) + timedelta(seconds=1).total_seconds()
    stamp = later if modified is None else modified.timestamp()
    os.utime(hidden, (stamp, stamp))
    hidden.rename(target)
    return target


def land_all(lake: Lake, stream: Stream, *batches: Iterable[Payload]) -> list[Path]:
    """Land each batch as a file of the stream's landing folder."""
    return [land(stream.source.location(lake), batch) for batch in batches]
