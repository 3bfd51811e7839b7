"""NEXMark's queries over a fixed file of events, against the same questions asked of DuckDB."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from docs.examples import nexmark
from docs.examples.nexmark import auction, bid, person
from streaming import Lake, Pipeline, View, drain, plan
from streaming.audit.laws import audit
from streaming.base import BadQuery
from streaming.declare import CURRENT
from streaming.declare.operator import Operator
from tests.support.instants import NOW
from tests.support.nexmark import AUCTION, BID, PERSON, Shape, events
from tidemark.testing import correct, land_all

Rows = list[tuple[Any, ...]]

# A day ends amid the events, of which each 25th comes half a minute late.
SHAPE = Shape(
    events=1_500,
    a_second=10,
    auctions_in_flight=20,
    active_persons=50,
    hot=10,
    disorder=7,
    late=0.04,
    late_by=300,
    begin=datetime(2025, 12, 31, 23, 59, tzinfo=UTC),
)
CHECKSUM = "f3c37c5a68dde34591469fc434277ce464230273d482b0e15ff904678f6aa8e9"
FIRST_BATCH = 1_000
DELAY = timedelta(seconds=4)


def at_the_edges() -> Iterator[tuple[str, dict[str, Any]]]:
    """Events of which each is at the bound of some query, in the order in which they come."""
    # Two minutes late, when the window in which they belong together was closed.
    yield PERSON, {"id": 1_999, "name": "Ada Late", "city": "Kent", "state": "OR", "dateTime": "2025-12-31T23:59:03Z"}
    late = {"id": 1_108, "itemName": "clock", "seller": 1_999, "category": 10, "initialBid": 1, "reserve": 2}
    yield AUCTION, {**late, "dateTime": "2025-12-31T23:59:09.999Z", "expires": "2026-01-01T00:30:00Z"}
    highest = {"auction": 1_000, "bidder": 1_999, "price": 99_999_999, "channel": "Apple", "url": "https://a/b/c?x&d"}
    yield BID, {**highest, "dateTime": "2025-12-31T23:59:07.050Z", "extra": "late"}
    opened = {"id": 1_107, "itemName": "vase", "initialBid": 1, "reserve": 2, "seller": 1_000, "category": 10}
    yield AUCTION, {**opened, "dateTime": "2026-01-01T06:00:00.000Z", "expires": "2026-01-01T06:10:00.000Z"}
    for time, price, bidder in (
        ("06:00:00.000", 1_400_000, 1),  # when the auction opens
        ("06:10:00.000", 1_500_000, 2),  # when it ends
        ("06:10:00.001", 1_600_000, 3),  # after it has ended
        ("06:59:59.999", 1_700_000, 4),  # the last of the night
        ("07:00:00.000", 1_700_000, 4),
        ("07:59:59.999", 1_700_000, 5),
        ("08:00:00.000", 1_700_000, 5),  # the first of the day
        ("08:00:10.000", 1_700_000, 5),  # ten seconds after the one before
        ("18:59:59.999", 1_700_000, 6),  # the last of the day, alone with its price
        ("19:00:00.000", 1_700_000, 7),
        ("19:00:01.000", 1_700_000, 8),  # as high as the one before, and in the same ten seconds
        ("19:00:10.000", 1_700_000, 9),  # as high, at the end of these
        ("20:00:00.000", 1_700_000, 9),  # the first of the night
    ):
        of = {"auction": 1_107, "bidder": bidder, "price": price, "channel": "Apple", "url": "https://a/b/c?x&d"}
        yield BID, {**of, "dateTime": f"2026-01-01T{time}Z", "extra": f"cc{bidder}"}


EVENTS = [*events(SHAPE), *((kind, json.dumps(values)) for kind, values in at_the_edges())]
BATCHES = (EVENTS[:FIRST_BATCH], EVENTS[FIRST_BATCH:])


@dataclass(frozen=True)
class Story:
    """A lake that two batches have come into, and the rows of each operator after each of them."""

    lake: Lake
    pipeline: Pipeline
    first: dict[str, Rows]
    """After the first batch."""
    uncorrected: dict[str, Rows]
    """After the end of the input, before late rows were corrected."""
    last: dict[str, Rows]
    """When everything was corrected."""


def rows_of(lake: Lake, operator: Operator) -> Rows:
    """The columns of a query, as any reader of Delta finds them."""
    suffix = CURRENT if operator.published else ""
    columns = [name for name in operator.columns if not name.startswith("_")]
    table = DeltaTable(lake.table(operator, suffix)).to_pyarrow_table(columns=columns)
    return plain(zip(*(column.to_pylist() for column in table.columns), strict=True))


def plain(rows: Iterable[Sequence[Any]]) -> Rows:
    """Rows with instants in UTC without a zone, sorted."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=str)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def later(seconds: int) -> Callable[[], datetime]:
    """A clock of processing time that stands still."""
    return partial(NOW.__add__, timedelta(seconds=seconds))


def told(spark: SparkSession, folder: Path, pipeline: Pipeline, corrected: Sequence[Operator] = ()) -> Story:
    """The story of some operators in a lake of their own; `corrected` are those by windows."""
    lake = Lake(str(folder))

    def shown() -> dict[str, Rows]:
        return {operator.name: rows_of(lake, operator) for operator in pipeline.operators}

    shots = []
    for number, batch in enumerate(BATCHES):
        for stream in (person, auction, bid):
            land_all(lake, stream, [line for kind, line in batch if kind == stream.name])
        drain(spark, lake, pipeline, now=later(12 * number), end_of_input=number == 1)
        shots.append(shown())
    for operator in corrected:
        correct(spark, lake, operator, lambda: NOW)
    if corrected:
        drain(spark, lake, pipeline, now=later(24))
        shots.append(shown())
    return Story(lake, pipeline, shots[0], shots[1], shots[-1])


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The SQL views over streams and one another."""
    streams = (person, auction, bid)
    pipeline = Pipeline(name="nexmark_views", streams=streams, operators=nexmark.by_views)
    return told(spark, tmp_path_factory.mktemp("views"), pipeline)


@pytest.fixture(scope="module")
def others(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """All other operators, and the SQL view of a view by windows."""
    side = str(tmp_path_factory.mktemp("side_input"))
    keys = range(10_000)
    write_deltalake(side, pa.table({"key": pa.array(keys, pa.int64()), "value": [f"v{key}" for key in keys]}))
    pipeline = replace(nexmark.pipeline, operators=(*nexmark.by_operators, nexmark.q13_side_input(side)))
    windows = (nexmark.q5_bids_of_window, nexmark.q7, nexmark.q8, nexmark.q11)
    return told(spark, tmp_path_factory.mktemp("others"), pipeline, windows)


@pytest.fixture(scope="module")
def oracle() -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
    """DuckDB with the events of the first batch, and with all, which has the bids of the first in `first_batch`."""
    first, every = asked_of(BATCHES[0]), asked_of(EVENTS)
    # Each event has a time of its own.
    every.execute("create table first_batch (dateTime timestamp)")
    times = [(json.loads(line)["dateTime"],) for kind, line in BATCHES[0] if kind == BID]
    every.executemany("insert into first_batch values (?)", times)
    return first, every


def asked_of(lines: Sequence[tuple[str, str]]) -> duckdb.DuckDBPyConnection:
    """A database with a table of each kind of event."""
    database = duckdb.connect()
    for stream in (person, auction, bid):
        columns = ", ".join(
            f"(e->>'{name}')::{'timestamp' if type_ == 'timestamp' else type_} as {name}"
            for name, type_ in stream.types.items()
        )
        texts = pa.table({"line": [line for kind, line in lines if kind == stream.name]})  # noqa: F841
        database.execute(f"create table {stream.name} as select {columns} from (select line::json as e from texts)")
    return database


Oracles = tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]


def check(story: Story, oracle: Oracles, operator: Operator, sql: str) -> Rows:
    """Hold the rows after both batches against the answer to the question; the last of them."""
    for shown, database in ((story.first, oracle[0]), (story.last, oracle[1])):
        assert shown[operator.name] == plain(database.sql(sql).fetchall())
    assert story.first[operator.name] != story.last[operator.name] != []
    return story.last[operator.name]


def check_at_the_end(story: Story, oracle: Oracles, operator: Operator, sql: str) -> None:
    """The same of windows, which the first batch leaves open, and of which late events are corrected."""
    expected = plain(oracle[1].sql(sql).fetchall())
    assert story.last[operator.name] == expected != []
    assert story.uncorrected[operator.name] != expected


def test_the_events_are_those_that_they_always_were() -> None:
    """1 : 3 : 46, some of them late, and the same bytes from every run."""
    assert [sum(kind == each for kind, _ in events(SHAPE)) for each in (PERSON, AUCTION, BID)] == [30, 90, 1_380]
    text = "\n".join(line for _, line in EVENTS)
    assert hashlib.sha256(text.encode()).hexdigest() == CHECKSUM
    times = [json.loads(line)["dateTime"] for kind, line in BATCHES[1] if kind == BID]
    newest = max(json.loads(line)["dateTime"] for kind, line in BATCHES[0] if kind == BID)
    assert sum(time < newest for time in times) == 13


@pytest.mark.long
def test_nexmark_q0_every_bid_is_passed_on(others: Story, oracle: Oracles) -> None:
    check(others, oracle, nexmark.q0, "select auction, bidder, price, dateTime, extra from bid")


@pytest.mark.long
def test_nexmark_q1_prices_become_euros_without_rounding(others: Story, oracle: Oracles) -> None:
    rows = check(
        others,
        oracle,
        nexmark.q1,
        "select auction, bidder, 0.908 * price::decimal(20, 0), dateTime, extra from bid",
    )
    assert all(isinstance(row[2], Decimal) for row in rows)


@pytest.mark.long
def test_nexmark_q2_bids_for_each_123rd_auction(others: Story, oracle: Oracles) -> None:
    check(others, oracle, nexmark.q2, "select auction, price from bid where auction % 123 = 0")


def test_nexmark_q3_who_sells_in_category_10_in_three_states(views: Story, oracle: Oracles) -> None:
    check(
        views,
        oracle,
        nexmark.q3,
        """
        select name, city, state, a.id from auction a, person p
        where seller = p.id and category = 10 and (state = 'OR' or state = 'ID' or state = 'CA')
        """,
    )


VALID_BIDS = "select a.*, b.* from auction a, bid b where id = auction and b.dateTime between a.dateTime and expires"


def test_nexmark_q4_average_price_of_closed_auctions_a_category(views: Story, oracle: Oracles) -> None:
    check(
        views,
        oracle,
        nexmark.q4,
        f"""
        with final as (select id, category, max(price) as price from ({VALID_BIDS}) group by id, category)
        select category, floor(avg(price))::bigint from final group by category
        """,
    )
    prices = {row[0]: row[2] for row in views.last[nexmark.q4_final_price.name]}
    assert prices[1_107] == 1_500_000, "a bid counts when the auction opens and when it ends, and not after that"


@pytest.mark.long
def test_nexmark_q5_auctions_with_most_bids_in_ten_seconds_every_two_seconds(others: Story, oracle: Oracles) -> None:
    check_at_the_end(
        others,
        oracle,
        nexmark.q5,
        """
        with hops as (
            select auction, count(*) as num, window_end from (
                select auction, make_timestamp((epoch_ms(dateTime) // 2000 + hop) * 2000000) as window_end
                from bid, range(1, 6) hops(hop)
            ) group by auction, window_end
        ),
        most as (select window_end, max(num) as num from hops group by window_end)
        select auction, num, window_end - interval 10 seconds, window_end from hops join most using (window_end, num)
        """,
    )


def test_nexmark_q6_average_price_of_a_sellers_newest_auctions_which_flink_cannot_say(
    views: Story, oracle: Oracles
) -> None:
    check(
        views,
        oracle,
        nexmark.q6,
        f"""
        with winning as (
            select seller, id, arg_max(price, (price, -epoch_ms(time))) as price,
                arg_max(time, (price, -epoch_ms(time))) as time
            from ({VALID_BIDS.replace("b.*", "b.price, b.dateTime as time")}) group by seller, id
        )
        select seller, w.id, (
            select (sum(price) // count(*))::bigint from (
                select price from winning o where o.seller = w.seller and (o.time, o.id) <= (w.time, w.id)
                order by time desc, id desc limit 11
            )
        ) from winning w
        """,
    )


@pytest.mark.long
def test_nexmark_q7_highest_bids_of_ten_seconds_also_where_two_are_equal(others: Story, oracle: Oracles) -> None:
    check_at_the_end(
        others,
        oracle,
        nexmark.q7,
        """
        with placed as (select *, time_bucket(interval 10 seconds, dateTime) as window_start from bid),
        top as (select window_start, max(price) as price from placed group by window_start)
        select window_start, window_start + interval 10 seconds, auction, bidder, price, dateTime, extra
        from placed join top using (window_start, price)
        """,
    )
    assert sum(row[4] == 1_700_000 and row[0].hour == 19 for row in others.last[nexmark.q7.name]) == 3


@pytest.mark.long
def test_nexmark_q7_first_results_are_of_what_came_in_time(others: Story, oracle: Oracles) -> None:
    ((newest,),) = oracle[0].sql("select max(dateTime) from bid").fetchall()
    # A late event counts for the windows that its stream's clock had not passed when it came.
    in_time = oracle[1].sql(
        f"""
        with placed as (
            select *, time_bucket(interval 10 seconds, dateTime) as window_start,
                dateTime in (select dateTime from first_batch) as in_first
            from bid
        ),
        counted as (
            select * from placed where in_first or window_start + interval 10 seconds > timestamp '{newest - DELAY}'
        ),
        top as (select window_start, max(price) as price from counted group by window_start)
        select window_start, window_start + interval 10 seconds, auction, bidder, price, dateTime, extra
        from counted join top using (window_start, price)
        """
    )
    assert others.uncorrected[nexmark.q7.name] == plain(in_time.fetchall())


@pytest.mark.long
def test_nexmark_q8_persons_who_open_an_auction_in_the_ten_seconds_in_which_they_register(
    others: Story, oracle: Oracles
) -> None:
    check_at_the_end(
        others,
        oracle,
        nexmark.q8,
        """
        with p as (select distinct id, name, time_bucket(interval 10 seconds, dateTime) as start from person),
        a as (select distinct seller, time_bucket(interval 10 seconds, dateTime) as start from auction)
        select id, p.start, p.start + interval 10 seconds, name from p join a on id = seller and p.start = a.start
        """,
    )


def test_nexmark_q9_the_winning_bid_of_each_auction(views: Story, oracle: Oracles) -> None:
    check(
        views,
        oracle,
        nexmark.q9,
        """
        select a.*, b.auction, b.bidder, b.price, b.dateTime, b.extra
        from auction a join bid b on id = auction and b.dateTime between a.dateTime and expires
        where not exists (
            select 1 from bid o where o.auction = a.id and o.dateTime between a.dateTime and a.expires
                and (-o.price, o.dateTime, o.bidder, o.extra) < (-b.price, b.dateTime, b.bidder, b.extra)
        )
        """,
    )


@pytest.mark.long
def test_nexmark_q10_bids_are_in_csv_files_of_their_hour(others: Story, oracle: Oracles) -> None:
    sql = """
        select auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d'), strftime(dateTime, '%H:%M')
        from bid
    """
    rows = check(others, oracle, nexmark.q10_rows, sql)
    files = sorted(Path(others.lake.path("exports/bid")).glob("20*/*.csv"))
    exported = asked_of([]).sql(f"select * from read_csv({[*map(str, files)]}, all_varchar = true)").fetchall()
    assert len(exported) == len(rows)
    assert {path.parent.name for path in files} == {f"{row[5]}--{row[6][:2]}" for row in rows}


@pytest.mark.long
def test_nexmark_q11_bids_of_each_session_of_a_bidder(others: Story, oracle: Oracles) -> None:
    check_at_the_end(
        others,
        oracle,
        nexmark.q11,
        """
        with begun as (
            select *, coalesce(dateTime - lag(dateTime) over of_bidder > interval 10 seconds, true)::int as begins
            from bid window of_bidder as (partition by bidder order by dateTime)
        ),
        numbered as (select *, sum(begins) over (partition by bidder order by dateTime) as session from begun)
        select bidder, min(dateTime), max(dateTime) + interval 10 seconds, count(*) from numbered
        group by bidder, session
        """,
    )


@pytest.mark.long
def test_nexmark_q12_bids_of_each_ten_seconds_of_processing_time(others: Story, oracle: Oracles) -> None:
    second = "dateTime not in (select dateTime from first_batch)"
    noon = NOW.replace(tzinfo=None)
    expected = oracle[1].sql(
        f"""
        select bidder, start, start + interval 10 seconds, count(*) from (
            select bidder, timestamp '{noon}' + case when {second} then interval 10 seconds else interval 0 seconds end
                as start
            from bid
        ) group by bidder, start
        """
    )
    assert others.last[nexmark.q12.name] == plain(expected.fetchall()) != []


@pytest.mark.long
def test_nexmark_q13_bids_have_the_value_of_the_side_input(others: Story, oracle: Oracles) -> None:
    (operator,) = (each for each in others.pipeline.operators if each.name == "q13_side_input")
    check(
        others,
        oracle,
        operator,
        "select auction, bidder, price, dateTime, auction % 10000, 'v' || auction % 10000 from bid",
    )


@pytest.mark.long
def test_nexmark_q14_time_of_day_and_letters_of_bids_in_a_range_of_prices(others: Story, oracle: Oracles) -> None:
    rows = check(
        others,
        oracle,
        nexmark.q14,
        """
        select auction, bidder, 0.908 * price::decimal(20, 0) as euros,
            case when hour(dateTime) >= 8 and hour(dateTime) <= 18 then 'dayTime'
                when hour(dateTime) <= 6 or hour(dateTime) >= 20 then 'nightTime' else 'otherTime' end,
            dateTime, extra, length(regexp_replace(extra, '[^c]', '', 'g'))
        from bid where euros > 1000000 and euros < 50000000
        """,
    )
    assert {row[3] for row in rows} == {"dayTime", "nightTime", "otherTime"}


def statistics(by: str, more: str = "") -> str:
    """The question of q15 and q16, by the columns of a group."""
    ranks = {"total": "true", "rank1": "price < 10000", "rank2": "price between 10000 and 999999"}
    ranks["rank3"] = "price > 999999"
    counted = {"*": "count(case when {} then 1 end)"}
    counted |= {name: f"count(distinct case when {{}} then {name} end)" for name in ("bidder", "auction")}
    values = ", ".join(count.format(rank) for count in counted.values() for rank in ranks.values())
    return f"select {by}, {more} {values} from bid group by {by}"


DAY = "strftime(dateTime, '%Y-%m-%d')"


def test_nexmark_q15_bids_bidders_and_auctions_by_level_of_price(views: Story, oracle: Oracles) -> None:
    assert len(check(views, oracle, nexmark.q15, statistics(DAY))) == 2


def test_nexmark_q16_the_same_of_each_channel_with_its_last_minute(views: Story, oracle: Oracles) -> None:
    last = "max(strftime(dateTime, '%H:%M')),"
    rows = check(views, oracle, nexmark.q16, statistics(f"channel, {DAY}", last))
    assert {row[0] for row in rows} > {"Apple", "Baidu", "Facebook", "Google"}


def test_nexmark_q17_bids_and_prices_of_each_auction_and_day(views: Story, oracle: Oracles) -> None:
    check(
        views,
        oracle,
        nexmark.q17,
        f"""
        select auction, {DAY} as day, count(*), count(case when price < 10000 then 1 end),
            count(case when price between 10000 and 999999 then 1 end), count(case when price > 999999 then 1 end),
            min(price), max(price), floor(avg(price))::bigint, sum(price)::bigint
        from bid group by auction, day
        """,
    )


def test_nexmark_q18_the_last_bid_of_each_bidder_for_an_auction(views: Story, oracle: Oracles) -> None:
    check(
        views,
        oracle,
        nexmark.q18,
        """
        select * from bid b where not exists (
            select 1 from bid o where (o.bidder, o.auction) = (b.bidder, b.auction)
                and (-epoch_ms(o.dateTime), o.price, o.extra) < (-epoch_ms(b.dateTime), b.price, b.extra)
        )
        """,
    )


def test_nexmark_q19_the_ten_highest_bids_of_each_auction(views: Story, oracle: Oracles) -> None:
    rows = check(
        views,
        oracle,
        nexmark.q19,
        """
        select b.*, (
            select count(*) + 1 from bid o where o.auction = b.auction
                and (-o.price, o.dateTime, o.extra) < (-b.price, b.dateTime, b.extra)
        ) as place from bid b where place <= 10
        """,
    )
    assert max(row[-1] for row in rows) == 10


def test_nexmark_q20_bids_with_the_auctions_of_category_10(views: Story, oracle: Oracles) -> None:
    check(
        views,
        oracle,
        nexmark.q20,
        """
        select b.*, itemName, description, initialBid, reserve, a.dateTime, expires, seller, category, a.extra
        from bid b, auction a where auction = id and category = 10
        """,
    )


@pytest.mark.long
def test_nexmark_q21_bids_with_the_id_of_their_channel(others: Story, oracle: Oracles) -> None:
    rows = check(
        others,
        oracle,
        nexmark.q21,
        """
        select * from (
            select auction, bidder, price, channel, case channel when 'Apple' then '0' when 'Google' then '1'
                when 'Facebook' then '2' when 'Baidu' then '3'
                else nullif(split_part(split_part(url, '&channel_id=', 2), '&', 1), '') end as channel_id
            from bid
        ) where channel_id is not null
        """,
    )
    assert len(rows) < len(others.last[nexmark.q0.name])


@pytest.mark.long
def test_nexmark_q22_the_directories_of_the_url(others: Story, oracle: Oracles) -> None:
    check(
        others,
        oracle,
        nexmark.q22,
        """
        select auction, bidder, price, channel, directories[4], coalesce(directories[5], ''),
            coalesce(directories[6], '')
        from (select *, string_split(url, '/') as directories from bid)
        """,
    )


def test_sql_views_refuse_the_windows_of_q5_with_what_to_write() -> None:
    with pytest.raises(BadQuery, match="declare a `Windowed`"):
        View(
            "q5",
            "select auction, count(*) as num, window(dateTime, '10 seconds', '2 seconds') as w from bid"
            " group by auction, window(dateTime, '10 seconds', '2 seconds')",
            of=(bid,),
            key=("auction",),
        )


@pytest.mark.long
def test_every_law_holds_for_the_sql_views(spark: SparkSession, views: Story) -> None:
    assert [finding for finding in audit(spark, views.lake, views.pipeline) if not finding.holds] == []


@pytest.mark.long
def test_every_law_holds_for_the_others_and_nothing_is_left_to_correct(spark: SparkSession, others: Story) -> None:
    assert [finding for finding in audit(spark, others.lake, others.pipeline) if not finding.holds] == []
    assert not any(plan(spark, others.lake, each) for each in (nexmark.q5_bids_of_window, nexmark.q7, nexmark.q8))
