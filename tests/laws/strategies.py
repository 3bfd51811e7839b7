"""What hypothesis draws: lines in disorder and dirt, cut into files and drains."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import HypothesisProvider

from tests.laws.oracle import EPOCH, SECOND, micros
from tests.laws.readings import LOCAL_MIDNIGHT, MIDNIGHT, NOW
from tests.support.seeds import draws

T = TypeVar("T")

ODD_KEYS = ("A", "", " a", "ü", "u\u0308", "日本", "😀", 'quo"te\\', "\x00", "null", None)
KEYS = (*"abcdefghijklmnopqrstuvwxyz0123456789", *ODD_KEYS)
VALUES = st.integers(-100, 130).map(lambda drawn: drawn if drawn <= 100 else None)
GRAINS = (0, 0, 1, -1, 1_000, -1_000)
START = micros(MIDNIGHT)
LONG_AGO = micros(datetime(1901, 2, 3, tzinfo=UTC))
AFTER_SILENCE = micros(LOCAL_MIDNIGHT)
HORIZON = micros(NOW) + 30 * SECOND

NOT_JSON = (
    b"",
    b"   ",
    b"hello",
    b'{"key": "a", "at": "2026-01-02T00',
    b"\xff\xfe\x00",
    b'{"key": "\xc3\x28"}',
    b"[]",
    b"[1, 2]",
    b"null",
    b"true",
    b"42",
    b'"{}"',
    b"{} {}",
    b"{},",
    b'{"unit": "C"}}',
    b'{"value": NaN}',
    b"\x00",
)
NOT_TIMES: tuple[Any, ...] = (
    "yesterday",
    "",
    "2026-01-02",
    "2026-01-02T00:00:10",
    "2026-02-30T00:00:00Z",
    "2026-01-02T25:00:00Z",
    "2026-01-02T00:61:00Z",
    "2026-01-02 00:00:10Z",
    1767312000,
    1.5,
    True,
    [],
    {},
)
OUT_OF_TIME = (HORIZON + 1, HORIZON + 3600 * SECOND, 253_402_200_000 * SECOND)
NOT_VALUES: tuple[Any, ...] = ("7", 2.5, 1.0, 1e2, True, [], {"v": 1}, 2**63, -(2**63) - 1, 10**30)
IMPLAUSIBLE = (101, -101, 2**63 - 1, -(2**63))
NOT_STRINGS: tuple[Any, ...] = (1, 2.5, False, ["C"], {"C": 1})


@dataclass(frozen=True)
class Feed:
    """A run: per drain the files that are there for it (lines of each), how many make a batch, and how it ends.

    `ends_between`: whether each drain but the last ends its input too; the last one always does. `keep_raw`: whether
    the log keeps the payload of valid rows.
    """

    drains: tuple[tuple[tuple[bytes, ...], ...], ...]
    files_per_batch: int
    ends_between: bool
    keep_raw: bool

    def lines(self) -> list[bytes]:
        """Every line, in order of arrival."""
        return [line for files in self.drains for lines in files for line in lines]


def _written(at: int, minutes: int, *, short: bool) -> str:
    local = (EPOCH + timedelta(microseconds=at)).astimezone(timezone(timedelta(minutes=minutes)))
    text = local.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{at % SECOND:06d}"
    if short:
        fraction = fraction.rstrip("0")
    offset = "Z" if not minutes else f"{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return text.rjust(19, "0") + (f".{fraction}" if fraction else "") + offset


def written(at: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    """An instant as a sender may write it: any offset, no more digits than needed, or all of them."""
    return st.builds(_written, at, st.sampled_from((0, 0, 0, 120, -330)), short=st.booleans())


# Hypothesis looks through a strategy before it draws from it, which takes longer than the drawing.
@cache
def times(around: int) -> st.SearchStrategy[str]:
    """Event times about an instant as written, within a few windows, many of them next to a window's bound."""
    on_bounds = st.builds(
        lambda size, steps, grain: max(LONG_AGO, (around // size + steps) * size + grain),
        st.sampled_from((10 * SECOND, 7 * SECOND)),
        st.integers(-3, 1),
        st.sampled_from(GRAINS),
    )
    anywhere = st.integers(-25 * SECOND, 8 * SECOND).map(lambda shift: around + shift)
    behind_seven = on_bounds.map(lambda at: at + 3 * SECOND)
    return written(st.one_of(on_bounds, anywhere, behind_seven))


@cache
@st.composite
def events(draw: st.DrawFn, around: int) -> dict[str, Any]:
    """A good event as its sender's fields; some fields are null, missing or unknown to us."""
    document: dict[str, Any] = {"at": draw(times(around)), "unit": "C"}
    key, value = draw(st.sampled_from(KEYS)), draw(VALUES)
    leave_out = draw(st.booleans())
    if key is not None or not leave_out:
        document["key"] = key
    if value is not None or not leave_out:
        document["value"] = value
    if draw(st.integers(0, 7)) == 0:
        document["later_field"] = {"nested": [1, None]}
    return document


_MISSING: Any = object()
_SPOILT = st.lists(
    st.one_of(
        st.tuples(st.just("at"), st.sampled_from(NOT_TIMES)),
        st.tuples(st.just("at"), st.sampled_from((_MISSING, None))),
        st.tuples(st.just("at"), written(st.sampled_from(OUT_OF_TIME))),
        st.tuples(st.just("value"), st.sampled_from(NOT_VALUES)),
        st.tuples(st.just("value"), st.sampled_from(IMPLAUSIBLE)),
        st.tuples(st.just("key"), st.sampled_from(NOT_STRINGS)),
        st.tuples(st.just("unit"), st.sampled_from((*NOT_STRINGS, "F", "c", "", None, _MISSING))),
    ),
    min_size=1,
    max_size=2,
)
"""Fields with what they are spoilt with."""


@cache
@st.composite
def dirty_events(draw: st.DrawFn, around: int) -> dict[str, Any]:
    """An event with one or two fields spoilt."""
    document = draw(events(around))
    for field, value in draw(_SPOILT):
        if value is _MISSING:
            document.pop(field, None)
        else:
            document[field] = value
    return document


@cache
@st.composite
def lines(draw: st.DrawFn, around: int = START, dirt: int = 4) -> bytes:
    """A line as it lies in a file; one in `dirt` is spoilt, some of those beyond JSON."""
    kind = draw(st.integers(0, 2 * dirt - 1))
    if kind == 0:
        return draw(st.sampled_from(NOT_JSON))
    document = draw(dirty_events(around) if kind == 1 else events(around))
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode()


@st.composite
def feeds(draw: st.DrawFn) -> Feed:
    """Five or six files, time moving on from file to file with one long silence; some are empty or come twice.

    Before the silence it is midnight in UTC, after it in New York, where a day of 23 hours ends. The last file brings
    some stragglers from the beginning, which are late for any window: a batch before theirs is from after the silence.
    """
    files: list[tuple[bytes, ...]] = []
    count = draw(st.integers(5, 6))
    # A batch has two files at most, so that the first one after the silence is not in the last batch.
    silent = draw(st.integers(2, count - 3))
    for number in range(count):
        moved_on = (number - silent) * 11 + 6 if number >= silent else number * 11 - 15
        around = (AFTER_SILENCE if number >= silent else START) + moved_on * SECOND
        what = draw(st.integers(0, 9)) if number != silent else 9
        if what == 0:
            files.append(())
        elif what == 1 and files:
            files.append(draw(st.sampled_from(files)))
        else:
            files.append(tuple(draw(st.lists(lines(around), min_size=80, max_size=110))))
    files[-1] += tuple(draw(st.lists(lines(draw(st.sampled_from((START, START, LONG_AGO)))), min_size=12, max_size=16)))
    cut = draw(st.integers(2, len(files) - 1))
    drains = (tuple(files[:cut]), tuple(files[cut:]))
    files_per_batch = draw(st.sampled_from((1, 1, 2)))
    # After an end of input all rows are too late for an update; those before it need batches that are late.
    ends_between = draw(st.booleans()) and files_per_batch == 1
    return Feed(drains, files_per_batch, ends_between, draw(st.booleans()))


def generated(strategy: st.SearchStrategy[T], number: int, *of: str | int) -> list[T]:
    """`number` examples from the seed of this run: what costs a Spark job each is drawn first and checked in one."""
    examples: list[T] = []

    def collect(example: T) -> None:
        examples.append(example)

    draw_all: Callable[[], None] = settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(hypothesis.seed(draws(*of).getrandbits(64))(given(strategy)(collect)))
    with pytest.MonkeyPatch.context() as patch:
        # Hypothesis sometimes draws a constant of an imported module, so that the examples would change with the code
        # and with the tests that are selected.
        patch.setattr(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None)
        draw_all()
    return examples
