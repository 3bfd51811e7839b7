"""Law of chains of operators of any kind: what is current of each level is a batch over the rows that stand in the log.

Rows of the first log are updated and deleted, and come late; steps, corrections and looks run in any order, and die at
any commit. The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    Delivery,
    Derived,
    History,
    Joined,
    Json,
    JsonLines,
    Keyed,
    Lake,
    Pipeline,
    Selected,
    SessionWindow,
    Sliding,
    Stream,
    Table,
    Tumbling,
    View,
    Windowed,
    WindowJoined,
    agg,
    micros,
)
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.changes import publish
from streaming.declare import CURRENT, Operator
from streaming.sinks import RESULT_ID
from streaming.tables import delta
from tests.laws.standing import sessions, side_of
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.orders import ORDERS, Batches, Revision, came
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct, land_all

GAP, SOON, APART = 30, 20, 40
"""Seconds of silence that end a session, after which a timer is due, and that two rows of a pair are apart at most."""
END = "XX"
"""The country of rows that close, one after the other, all that is open at the levels."""
MARKS = [10_000.0 * number for number in range(1, 7)]
SELECTED = {"country": "country", "amount": "amount"}
Row = tuple[str, float, int]
"""Country, seconds after T0, amount."""


def add(key: Any, row: Any) -> None:
    key.total = (key.total or 0) + row.amount
    key.timer("soon", key.at + micros(f"{SOON} seconds"))


def tell(key: Any) -> None:
    key.emit(amount=key.total)


def counted(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"amount": sum(row.amount for row in left) + len(right)}


@dataclass(frozen=True)
class Kind:
    """One level of a chain: how it is declared over a stream, and what it makes of rows by hand."""

    declared: Callable[[str, Stream], Operator]
    by_hand: Callable[[Sequence[Row]], Iterable[Row]]
    at: str
    """The column with the time of a row."""
    tells_clock: bool = True


def by_window(rows: Iterable[Row], size: int, slide: int) -> dict[tuple[str, float], list[int]]:
    """The amounts in each window, by country and start."""
    groups: dict[tuple[str, float], list[int]] = defaultdict(list)
    for country, seconds, amount in rows:
        last = seconds // slide * slide
        for back in range(0, size, slide):
            if last - back + size > seconds:
                groups[country, last - back].append(amount)
    return groups


def by_country(rows: Iterable[Row]) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for country, seconds, amount in rows:
        found[country].append((seconds, amount))
    return found


def sums_of_minutes(rows: Sequence[Row]) -> Iterator[Row]:
    yield from ((*place, sum(amounts)) for place, amounts in by_window(rows, 60, 60).items())


def greatest_of_windows(rows: Sequence[Row]) -> Iterator[Row]:
    yield from ((*place, max(amounts)) for place, amounts in by_window(rows, 60, 30).items())


def sums_of_sessions(rows: Sequence[Row]) -> Iterator[Row]:
    for country, of in by_country(rows).items():
        yield from ((country, start, sum(amounts)) for start, _, amounts in sessions(of, GAP))


def meetings_of_sessions(rows: Sequence[Row]) -> Iterator[Row]:
    for country, of in by_country(rows).items():
        yield from ((country, start, sum(amounts) + len(amounts)) for start, _, amounts in sessions(of, GAP))


def chosen(rows: Sequence[Row]) -> Iterator[Row]:
    yield from ((country, at, amount + 1) for country, at, amount in rows if amount % 3 or country == END)


def pairs(rows: Sequence[Row]) -> Iterator[Row]:
    for country, at, amount in rows:
        for other, its, of_it in rows:
            if country == other and 0 <= its - at <= APART and (at < its or country == END):
                yield country, its, amount + of_it


def pairs_of_minutes(rows: Sequence[Row]) -> Iterator[Row]:
    for place, amounts in by_window(rows, 60, 60).items():
        yield from ((*place, one + other) for one in amounts for other in amounts)


def told_soon(rows: Sequence[Row]) -> Iterator[Row]:
    """A total each time that no row has come for a while, which begins anew once none has come for longer."""
    for country, of in by_country(rows).items():
        total, before = 0, None
        for seconds, amount in [*sorted(of), (float("inf"), 0)]:
            if before is not None and seconds - before >= SOON:
                yield country, before + SOON, total
            total = amount if before is None or seconds - before >= GAP else total + amount
            before = seconds


KINDS = {
    "minutes": Kind(
        lambda name, of: Windowed(name, of, Tumbling("60 seconds"), {"amount": agg.sum("amount")}, by=("country",)),
        sums_of_minutes,
        "window_start",
    ),
    "updated": Kind(
        lambda name, of: Windowed(
            name,
            of,
            Tumbling("60 seconds"),
            {"amount": agg.sum("amount")},
            by=("country",),
            late="update",
            allowed_lateness="2 minutes",
        ),
        sums_of_minutes,
        "window_start",
    ),
    "sliding": Kind(
        lambda name, of: Windowed(
            name, of, Sliding("60 seconds", "30 seconds"), {"amount": agg.maximum("amount")}, by=("country",)
        ),
        greatest_of_windows,
        "window_start",
    ),
    "sessions": Kind(
        lambda name, of: Windowed(
            name, of, SessionWindow(f"{GAP} seconds"), {"amount": agg.sum("amount")}, by=("country",)
        ),
        sums_of_sessions,
        "window_start",
        tells_clock=False,
    ),
    "selection": Kind(
        lambda name, of: Selected(
            name,
            of,
            select={"country": "country", "amount": "amount + 1"},
            where=f"amount % 3 <> 0 or country = '{END}'",
        ),
        chosen,
        "_at",
    ),
    "join": Kind(
        lambda name, of: Joined(
            name,
            of,
            of,
            on=("country",),
            between=("0 seconds", f"{APART} seconds"),
            select={"country": "country", "amount": "left_amount + right_amount"},
            where=f"_left_at < _right_at or country = '{END}'",
        ),
        pairs,
        "_at",
    ),
    "window join": Kind(
        lambda name, of: WindowJoined(
            name, of, of, ("country",), Tumbling("60 seconds"), {"amount": "left_amount + right_amount"}
        ),
        pairs_of_minutes,
        "window_start",
    ),
    "co-group": Kind(
        lambda name, of: CoGrouped(
            name, of, of, ("country",), SessionWindow(f"{GAP} seconds"), "amount bigint", counted
        ),
        meetings_of_sessions,
        "window_start",
        tells_clock=False,
    ),
    "function": Kind(
        lambda name, of: Keyed(
            name,
            of,
            ("country",),
            "total bigint",
            "amount bigint",
            add,
            timers={"soon": tell},
            order="event",
            idle=f"{GAP} seconds",
        ),
        told_soon,
        "_at",
    ),
    "query": Kind(
        lambda name, of: View(
            name,
            sql=(
                "select country, timestamp_seconds(floor(unix_seconds(at) / 60) * 60) as start, sum(amount) as amount "
                f"from {of.name} group by country, timestamp_seconds(floor(unix_seconds(at) / 60) * 60)"
            ),
            of=(of,),
            key=("country", "start"),
        ),
        sums_of_minutes,
        "start",
        tells_clock=False,
    ),
}
HISTORY = Kind(lambda name, of: History(name, of, track=("country",)), lambda rows: rows, "valid_from", False)
"""It is of revisions, so that it can be the first level alone."""


def intervals(batches: Batches) -> list[Row]:
    """Of each key where another country begins, with the amount of the last revision before the next one."""
    by_key: dict[str, list[Revision]] = defaultdict(list)
    for batch in batches.values():
        for each in batch:
            by_key[each.id].append(each)
    found: list[Row] = []
    for of_key in by_key.values():
        open_row: Row | None = None
        for instant in sorted({each.time for each in of_key}):
            # Of one time the greatest version counts, of equal ones the first that came.
            newest = max((each for each in of_key if each.time == instant), key=lambda each: each.version)
            since = instant
            if open_row is not None and not newest.gone and open_row[0] == newest.country:
                since = open_row[1]
            elif open_row is not None:
                found.append(open_row)
            open_row = None if newest.gone else (newest.country or "", since, newest.amount or 0)
        found += [] if open_row is None else [open_row]
    return found


def chain_of(kinds: Sequence[Kind], folder: Path) -> list[Pipeline]:
    """A pipeline for each level; what is current of the last one is delivered into a folder."""
    stream, pipelines = ORDERS, []
    for number, kind in enumerate(kinds):
        operator = kind.declared(f"level{number}", stream)
        # The time of a row that has no window is not delivered unless it is asked for.
        select = {**{name: f"`{name}`" for name in operator.result_key or ()}, **SELECTED, "at": kind.at}
        told = Delivery("told", operator, JsonLines(str(folder)), what="current", select=select)
        pipelines.append(Pipeline(stream, (operator,), deliveries=(told,) if number + 1 == len(kinds) else ()))
        clock = Derived if kind.tells_clock else partial(BoundedOutOfOrderness, "10 seconds")
        is_of_row = kind.at in ("window_start", "_at")
        stream = Stream(
            name=f"rows{number}",
            source=Table(operator, what="current"),
            format=Json("country string, amount bigint" + ("" if is_of_row else f", {kind.at} timestamp")),
            derived={"at": "_origin.at" if is_of_row else kind.at},
            event_time="at",
            clock=clock(max_ahead="30 days"),
        )
    return pipelines


def expected(batches: Batches, kinds: Sequence[Kind]) -> list[list[Row]]:
    """The rows of each level but for the marks: of those of the level before it, however that came about."""
    rows: list[Row] = [(each.country or "", each.time, each.amount or 0) for each in side_of(batches).standing()]
    levels = []
    for kind in kinds:
        rows = intervals(batches) if kind is HISTORY else list(kind.by_hand(rows))
        levels.append(sorted(row for row in rows if row[0] != END))
    return levels


def current(lake: Lake, operator: Operator, kind: Kind) -> list[Row]:
    """What lies in the table of what is current."""
    rows = delta.opened(lake.table(operator, CURRENT)).to_pyarrow_table(columns=["country", "amount", kind.at])
    return sorted(
        (row["country"], (row[kind.at] - T0).total_seconds(), row["amount"])
        for row in rows.to_pylist()
        if row["country"] != END
    )


def delivered(folder: Path, operator: Operator) -> list[Row]:
    """What a consumer holds that applies each change that it is told of."""
    there: dict[tuple[str, ...], Row] = {}
    identity = operator.result_key or (RESULT_ID,)
    for file in sorted(folder.glob("20*/*.json"), key=lambda each: each.name):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["_change"] == "delete":
                del there[tuple(line[name] for name in identity)]
            else:
                at = (datetime.fromisoformat(line["at"]) - T0).total_seconds()
                there[tuple(line[name] for name in identity)] = (line["country"], at, line["amount"])
    return sorted(row for row in there.values() if row[0] != END)


def drawn(chance: random.Random, until: float, versions: dict[str, int]) -> list[Revision]:
    """Revisions of a few keys: updates, moves, deletes, keys that come again, old ones that come late."""
    batch = []
    for _ in range(chance.randint(1, 6)):
        key, draw = chance.choice("abcdef"), chance.random()
        versions[key] += chance.choice((1, 1, 2)) if draw < 0.9 else -1
        seconds = max(0.0, until - chance.choice((0, 1, 20, 30, 90, 400)))
        if draw < 0.2:
            batch.append(Revision(key, versions[key], seconds, None, None, True))
        else:
            batch.append(Revision(key, versions[key], seconds, chance.choice(("DE", "FR")), chance.randint(1, 4)))
    return batch


def done_at_once(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[Callable[[], object]]:
    """What may be done at a level: to take what there is, to correct what is due, to tell what has changed."""
    (operator,) = pipeline.operators
    return [
        partial(run, spark, lake, pipeline),
        *([partial(correct, spark, lake, operator, lambda: NOW)] if operator.corrected else []),
        partial(publish, spark, lake, operator),
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_current_of_every_level_is_a_batch_over_the_rows_that_stand_whatever_kinds_follow_one_another(
    spark: SparkSession, lake: Lake, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"mixed chain {seed}")
    names = chance.sample(sorted(KINDS), chance.choice((2, 3, 4)))
    kinds = [KINDS[name] for name in names]
    if chance.random() < 0.2:
        names[0], kinds[0] = "history", HISTORY
    pipelines = chain_of(kinds, tmp_path / "told")
    until, versions, sent = 400.0, defaultdict[str, int](int), list[Revision]()

    def send(revisions: Sequence[Revision]) -> None:
        sent.extend(revisions)
        land_all(lake, ORDERS, [each.payload() for each in revisions])

    def disturbed(times: int) -> None:
        """Something, somewhere, which may die at a commit; one whose upstream has nothing yet is refused."""
        for _ in range(times):
            with monkeypatch.context() as patched, suppress(Killed, StreamingError):
                if chance.random() < 0.5:
                    killed_at(chance.randint(1, 6), patched)
                chance.choice(done_at_once(spark, lake, chance.choice(pipelines)))()

    for _ in range(3):
        until += chance.choice((20, 60, 200))
        send(drawn(chance, until, versions))
        disturbed(2)
    for number, seconds in enumerate(MARKS):
        send([Revision(f"mark{number}", 1, seconds, END, 1)])
    disturbed(2)
    # Each level has told all by now, so whatever comes takes rows back from closed windows.
    late = [
        Revision("a", versions["a"] + 10, 405.0, "DE", 50),
        Revision("b", versions["b"] + 10, 410.0, None, None, True),
    ]
    quiet(spark, lake, pipelines)
    send(late)
    disturbed(3)
    quiet(spark, lake, pipelines)
    check_law(spark, lake, dict(zip(names, kinds, strict=True)), pipelines, sent, tmp_path / "told")


@pytest.mark.long
def test_a_chain_that_dies_before_each_of_its_commits_is_right(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt comes one commit further than the one before; at first with all rows, then with what comes late."""
    kinds = {name: KINDS[name] for name in ("minutes", "sessions", "function")}
    pipelines = chain_of([*kinds.values()], tmp_path / "told")
    deaths = Counter[str]()

    def dying(do: Callable[[], object], of: str) -> None:
        for nth in chain((1,), repeat(2)):
            assert deaths[of] < 60, f"{of} comes no further"
            with monkeypatch.context() as patched, suppress(Killed, StreamingError):
                killed_at(nth, patched)
                do()
                if nth > 1:
                    return
            deaths[of] += 1

    orders = [Revision(key, 1, seconds, "DE", 1) for key, seconds in (("a", 10), ("b", 70), ("c", 75), ("d", 130))]
    marks = [Revision(f"mark{number}", 1, seconds, END, 1) for number, seconds in enumerate(MARKS)]
    late = [Revision("a", 2, 10, "DE", 5), Revision("b", 2, 70, None, None, True)]
    for number, sent in enumerate(([*orders, *marks], late)):
        land_all(lake, ORDERS, [each.payload() for each in sent])
        for level, pipeline in enumerate(pipelines):
            for which, do in enumerate(done_at_once(spark, lake, pipeline)):
                dying(do, f"{number}, level {level}, {which}")
    check_law(spark, lake, kinds, pipelines, [*orders, *marks, *late], tmp_path / "told")
    assert sum(deaths.values()) > 40, deaths


def check_law(
    spark: SparkSession, lake: Lake, kinds: dict[str, Kind], pipelines: list[Pipeline], sent: list[Revision], told: Path
) -> None:
    """What is current, audited and delivered of each level is of all revisions that were sent, and nothing is left."""
    names, batches = [*kinds], came(spark, lake, ORDERS)
    assert Counter(each for batch in batches.values() for each in batch) == Counter(sent)
    truth = expected(batches, [*kinds.values()])
    for (name, kind), of, rows in zip(kinds.items(), pipelines, truth, strict=True):
        assert current(lake, of.operators[0], kind) == rows, (names, name)
    findings = [finding for pipeline in pipelines for finding in audit(spark, lake, pipeline)]
    assert [finding for finding in findings if not finding.holds] == [], names
    versions_of_logs = [delta.opened(lake.log(pipeline.stream)).version() for pipeline in pipelines]
    quiet(spark, lake, pipelines)
    assert [delta.opened(lake.log(each.stream)).version() for each in pipelines] == versions_of_logs, names
    assert delivered(told, pipelines[-1].operators[0]) == truth[-1], names


def quiet(spark: SparkSession, lake: Lake, pipelines: Sequence[Pipeline]) -> None:
    """One pass from the first log to the last table."""
    for pipeline in pipelines:
        for do in done_at_once(spark, lake, pipeline):
            do()


def test_the_oracle_knows_what_each_kind_makes_of_rows() -> None:
    rows: list[Row] = [("DE", 5, 1), ("DE", 25, 3), ("DE", 45, 2), ("DE", 75, 4)]
    made = {name: sorted(kind.by_hand(rows)) for name, kind in KINDS.items()}
    assert made == {
        "minutes": [("DE", 0, 6), ("DE", 60, 4)],
        "query": [("DE", 0, 6), ("DE", 60, 4)],
        "updated": [("DE", 0, 6), ("DE", 60, 4)],
        "sliding": [("DE", -30, 3), ("DE", 0, 3), ("DE", 30, 4), ("DE", 60, 4)],
        "sessions": [("DE", 5, 10)],
        "co-group": [("DE", 5, 14)],
        "selection": [("DE", 5, 2), ("DE", 45, 3), ("DE", 75, 5)],
        "join": [("DE", 25, 4), ("DE", 45, 3), ("DE", 45, 5), ("DE", 75, 6)],
        "window join": [("DE", 0, each) for each in (2, 3, 3, 4, 4, 4, 5, 5, 6)] + [("DE", 60, 8)],
        "function": [("DE", 25, 1), ("DE", 45, 4), ("DE", 65, 6), ("DE", 95, 4)],
    }
