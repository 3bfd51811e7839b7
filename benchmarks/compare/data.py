"""The input of every contender: JSON lines, out of order, a few damaged, late or twice, and what they must come to.

The same arguments make the same bytes. Values are multiples of a quarter, so that their sums are exact in any order.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

OUT_OF_ORDER = timedelta(seconds=8)
LATE_BY = timedelta(minutes=10)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_DAMAGED, _LATE, _TWICE = 0.01, 0.02, 0.005
_EXPECTED = "expected.json"


@dataclass(frozen=True)
class Shape:
    """The generated data: lines of `width` bytes for `keys` keys, `a_second` of them in a second of event time.

    `disorder` multiplies how far rows are out of order; the share that is late stays.
    """

    rows: int
    width: int = 168
    keys: int = 16_000
    a_file: int = 100_000
    a_second: float = 2_000
    disorder: float = 1
    seed: int = 2013

    @property
    def name(self) -> str:
        """Names its folder."""
        return "-".join(f"{name}={value:g}" for name, value in asdict(self).items())


TINY = Shape(100, a_file=100)
"""For what a process costs before it has rows to speak of."""


@dataclass
class Expected:
    """The counts that every contender must find, made while the lines were written; `sum` is of the valid values."""

    rows: int = 0
    damaged: int = 0
    valid: int = 0
    sum: float = 0.0


def generate(folder: Path, shape: Shape) -> tuple[Path, Expected]:
    """The folder of the files, written if they are not there yet, and what is in them."""
    there = folder / shape.name
    if (there / _EXPECTED).exists():
        return there / "in", Expected(**json.loads((there / _EXPECTED).read_text()))
    shutil.rmtree(there, ignore_errors=True)
    (there / "in").mkdir(parents=True)
    expected = Expected()
    for number, lines in enumerate(files(shape, expected)):
        (there / "in" / f"{number:05}.json").write_text("".join(lines))
    (there / _EXPECTED).write_text(json.dumps(asdict(expected)))
    return there / "in", expected


def files(shape: Shape, expected: Expected) -> Iterator[list[str]]:
    """The lines of one file after the other; `expected` counts along."""
    for number in range(-(-shape.rows // shape.a_file)):
        begin = BEGIN.timestamp() + number * shape.a_file / shape.a_second
        rows = min(shape.a_file, shape.rows - number * shape.a_file)
        yield lines(shape, random.Random(f"{shape.seed}/{number}"), begin, rows, expected)


def lines(shape: Shape, drawn: random.Random, begin: float, rows: int, expected: Expected) -> list[str]:
    """`rows` lines whose event time goes on from `begin`, in seconds since the epoch."""
    draw = drawn.random
    behind, late = OUT_OF_ORDER.total_seconds() * shape.disorder, LATE_BY.total_seconds() * shape.disorder
    made: list[str] = []
    while len(made) < rows:
        at = begin + len(made) / shape.a_second - draw() * behind
        if draw() < _LATE:
            at -= draw() * late
        value = int(draw() * 4_000) / 4
        bare = (
            f'{{"id":"k{int(draw() * shape.keys):07}","at":"{_text(at)}","value":{value},"unit":"C",'
            f'"site":"s{int(draw() * 100):02}","note":"'
        )
        line = f'{bare}{"x" * (shape.width - len(bare) - 3)}"}}\n'
        if draw() < _DAMAGED:
            made.append(f"{line[:40]}\n")
            expected.damaged += 1
            continue
        copies = 2 if draw() < _TWICE and len(made) + 2 <= rows else 1
        made += [line] * copies
        expected.valid += copies
        expected.sum += copies * value
    expected.rows += len(made)
    return made


def _text(seconds: float) -> str:
    millis = int(seconds * 1000)
    return f"{datetime.fromtimestamp(millis // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{millis % 1000:03}Z"
