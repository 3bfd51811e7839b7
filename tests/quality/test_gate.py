"""The gate on a shop's orders: closed by everything that is not known to be good, open otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from docs.examples.orders import orders_per_day, pipeline
from quality import (
    GateClosed,
    Pin,
    Pins,
    QualityError,
    all_verdicts,
    judge,
    open_gate,
    pin,
    store_verdicts,
    verdicts_for,
)
from streaming.base.errors import NotBuiltYet
from streaming.lake.lake import Lake
from streaming.views.corrections import correct
from tests.support.instants import NOW
from tests.support.runs import run

MONDAY, TUESDAY = date(2025, 12, 1), date(2025, 12, 2)
TABLE = "orders/orders_per_day"


def order(order_id: str, ordered_at: str, amount: float) -> dict[str, object]:
    return {"order_id": order_id, "ordered_at": ordered_at, "amount": amount}


ON_MONDAY = [order("a", "2025-12-01T09:00:00Z", 10.5), order("b", "2025-12-01T10:00:00Z", 4.5)]
ON_TUESDAY = [order("c", "2025-12-02T02:00:00Z", 1.0)]  # closes Monday
ON_WEDNESDAY = [order("e", "2025-12-03T02:00:00Z", 1.0)]
LATE = [order("d", "2025-12-01T23:00:00Z", 2.25)]


@pytest.fixture(scope="module")
def stages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shop after each of three runs; `orders` of a stage is a copy of the lake's tables."""
    root = tmp_path_factory.mktemp("stages")
    lake = Lake(str(root / "lake"))
    for stage, batches in (("monday", (ON_MONDAY, ON_TUESDAY)), ("tuesday", (ON_WEDNESDAY,)), ("late", (LATE,))):
        run(spark, lake, pipeline, *batches)
        shutil.copytree(root / "lake" / "orders", root / stage)
    return root


@pytest.fixture
def shop(stages: Path, lake: Lake) -> Lake:
    """A lake of its own for one test, in which Monday is closed and nothing came late."""
    return turn_to("monday", stages, lake)


def turn_to(stage: str, stages: Path, lake: Lake) -> Lake:
    """The shop's tables as they are after that stage."""
    shutil.copytree(stages / stage, f"{lake.root}/orders", dirs_exist_ok=True)
    return lake


@pytest.fixture
def now() -> Callable[[], datetime]:
    """A clock that ticks once a look."""
    seconds = count()
    return lambda: NOW + timedelta(seconds=next(seconds))


def closed(spark: SparkSession, lake: Lake, pins: Pins, days: list[date] | None = None) -> GateClosed:
    with pytest.raises(GateClosed) as caught:
        open_gate(spark, lake, pipeline, pins, days)
    return caught.value


def whys(error: GateClosed) -> set[str]:
    return {reason.why for reason in error.reasons}


def test_it_opens_on_the_judged_versions_and_on_no_other(
    spark: SparkSession, shop: Lake, stages: Path, now: Callable[[], datetime]
) -> None:
    pins = pin(shop, pipeline)
    error = closed(spark, shop, pins)
    assert whys(error) == {"missing"}
    assert str(error).splitlines()[0] == (
        f"gate closed: expectation 'column_types' on orders/log version {pins.versions()['log']} has no verdict"
    )

    verdicts = judge(spark, shop, pipeline, pins, "run-1", now)
    open_gate(spark, shop, pipeline, pins)
    assert {verdict.outcome for verdict in verdicts} == {"passed"}
    assert sorted(verdicts, key=lambda row: (row.table, row.expectation)) == sorted(
        all_verdicts(shop, "orders/log") + all_verdicts(shop, TABLE), key=lambda row: (row.table, row.expectation)
    )
    version = pins.versions()["orders_per_day"]
    assert version is not None
    key_verdict = verdicts_for(shop, TABLE, version)["unique_key"]
    assert (key_verdict.outcome, key_verdict.observed, key_verdict.run_id) == ("passed", "0 rows", "run-1")
    assert DeltaTable(shop.verdicts()).version() == 1  # one commit per suite run
    assert Pins.from_json(pins.to_json()) == pins

    turn_to("tuesday", stages, shop)  # the stream goes on
    newer = pin(shop, pipeline)
    error = closed(spark, shop, newer)
    assert whys(error) == {"stale"}
    assert f"has a stale verdict only, that of version {pins.versions()['log']} (passed" in str(error)
    open_gate(spark, shop, pipeline, pins)


def test_a_bad_table_closes_it_and_the_first_line_says_with_which_value(
    spark: SparkSession, shop: Lake, now: Callable[[], datetime]
) -> None:
    uri = shop.first(orders_per_day)
    write_deltalake(uri, DeltaTable(uri).to_pyarrow_table(), mode="append")  # Monday twice
    pins = pin(shop, pipeline)
    judge(spark, shop, pipeline, pins, "run-1", now)

    error = closed(spark, shop, pins)

    assert whys(error) == {"failed"}
    first = str(error).splitlines()[0]
    assert first.startswith(
        f"gate closed: expectation 'unique_key' on {TABLE} version {pins.versions()['orders_per_day']} failed: "
        "observed 1 rows, such as window_start=2025-12-01"
    )


@pytest.mark.long
def test_a_table_that_cannot_be_read_could_not_run_which_is_not_failed(
    spark: SparkSession, shop: Lake, now: Callable[[], datetime]
) -> None:
    for file in Path(shop.first(orders_per_day)).rglob("*.parquet"):
        file.unlink()
    pins = pin(shop, pipeline)
    judge(spark, shop, pipeline, pins, "run-1", now)

    error = closed(spark, shop, pins)

    assert {(reason.why, reason.table) for reason in error.reasons} == {("could_not_run", TABLE)}
    assert [reason.expectation for reason in error.reasons] == ["unique_key", "day_of_window"]


@pytest.mark.long
def test_late_rows_close_it_until_their_day_is_corrected(
    spark: SparkSession, stages: Path, lake: Lake, now: Callable[[], datetime]
) -> None:
    shop = turn_to("late", stages, lake)
    pins = pin(shop, pipeline)
    judge(spark, shop, pipeline, pins, "run-1", now)

    error = closed(spark, shop, pins)
    assert whys(error) == {"uncorrected"}
    assert "2025-12-01 has 1 late rows" in str(error).splitlines()[0]
    assert "`tidemark correct orders --day 2025-12-01`" in str(error).splitlines()[0]
    open_gate(spark, shop, pipeline, pins, [TUESDAY])

    correct(spark, shop, orders_per_day, [MONDAY], now)
    # Corrected now, but the pins still say that there is no correction to read.
    assert whys(closed(spark, shop, pins)) == {"uncorrected"}

    pins = pin(shop, pipeline)
    assert whys(closed(spark, shop, pins)) == {"missing"}
    judge(spark, shop, pipeline, pins, "run-2", now)
    open_gate(spark, shop, pipeline, pins)

    # What is corrected after the pins is for the next report: while a stream runs, that is all the time.
    correct(spark, shop, orders_per_day, [MONDAY], now)
    open_gate(spark, shop, pipeline, pins)


def test_a_verdict_on_another_table_or_another_definition_is_stale(
    spark: SparkSession, shop: Lake, now: Callable[[], datetime]
) -> None:
    pins = pin(shop, pipeline)
    verdicts = judge(spark, shop, pipeline, pins, "run-1", now)

    rebuilt = replace(pins, tables=tuple(replace(each, table_id="another") for each in pins.tables))
    error = closed(spark, shop, rebuilt)
    assert whys(error) == {"moved", "stale"}
    assert "that of an earlier table in the same place" in str(error)

    looser = [replace(verdict, definition="{}", judged_at=now()) for verdict in verdicts]
    store_verdicts(shop, looser)
    error = closed(spark, shop, pins)
    assert whys(error) == {"stale"}
    assert "that of an earlier definition of the expectation" in str(error)

    # Of two verdicts at one instant, the one that closes counts; a later one that passed opens again.
    store_verdicts(shop, verdicts)
    again = now()
    store_verdicts(shop, [replace(verdict, judged_at=again) for verdict in verdicts])
    open_gate(spark, shop, pipeline, pins)
    store_verdicts(
        shop, [replace(verdict, judged_at=again, outcome="failed", observed="9") for verdict in verdicts[:1]]
    )
    assert whys(closed(spark, shop, pins)) == {"failed"}


def test_pins_that_do_not_fit_are_refused(spark: SparkSession, shop: Lake, lake: Lake, tmp_path: Path) -> None:
    pins = pin(shop, pipeline)

    with pytest.raises(QualityError, match="pin again"):
        open_gate(spark, shop, pipeline, replace(pins, pipeline="flights"))
    with pytest.raises(QualityError, match="pin again"):
        open_gate(spark, shop, pipeline, replace(pins, tables=pins.tables[:1], absent=(*pins.absent, "log")))
    with pytest.raises(QualityError, match="Pin again"):
        open_gate(spark, shop, pipeline, replace(pins, tables=pins.tables[:1]))
    with pytest.raises(NotBuiltYet, match=r"'orders/orders_per_day'.*tidemark run orders"):
        pin(Lake(str(tmp_path / "nothing")), pipeline)


@pytest.mark.parametrize(
    ("log", "view", "is_older"),
    [(("l", 3), ("v", 7), True), (("l", 4), ("v", 7), False), (("l", 3), ("v", 8), False), (("l", 3), ("w", 0), False)],
    ids=["one older", "the same", "one older and one newer", "a view that was made anew"],
)
def test_pins_are_older_where_nothing_in_them_is_newer(
    log: tuple[str, int], view: tuple[str, int], is_older: bool
) -> None:
    def pins(*tables: tuple[str, int]) -> Pins:
        return Pins("orders", tuple(Pin(table, table, table, table, version) for table, version in tables))

    assert pins(log, view).are_older_than(pins(("l", 4), ("v", 7))) is is_older
