"""NEXMark: persons open auctions, others bid. Its queries q0 to q22, each an operator; see docs/nexmark.md."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    CsvFiles,
    Delivery,
    DimensionLookup,
    Enriched,
    Files,
    Json,
    Pipeline,
    Selected,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    View,
    Windowed,
    WindowFunction,
    agg,
)

person = Stream(
    name="person",
    description="One row per person who has registered.",
    source=Files("landing/person"),
    format=Json(
        "id bigint not null, name string, emailAddress string, creditCard string, city string, state string,"
        " dateTime timestamp not null, extra string"
    ),
    event_time="dateTime",
    clock=BoundedOutOfOrderness("4 seconds"),
)

auction = Stream(
    name="auction",
    description="One row per auction that was opened.",
    source=Files("landing/auction"),
    format=Json(
        "id bigint not null, itemName string, description string, initialBid bigint, reserve bigint,"
        " dateTime timestamp not null, expires timestamp, seller bigint, category bigint, extra string"
    ),
    event_time="dateTime",
    clock=BoundedOutOfOrderness("4 seconds"),
)

bid = Stream(
    name="bid",
    description="One row per bid.",
    source=Files("landing/bid"),
    format=Json(
        "auction bigint not null, bidder bigint, price bigint, channel string, url string,"
        " dateTime timestamp not null, extra string"
    ),
    event_time="dateTime",
    clock=BoundedOutOfOrderness("4 seconds"),
)

bid_as_it_came = replace(
    bid,
    name="bid_as_it_came",
    derived={"arrived_at": "_ingested_at"},
    event_time="arrived_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

q0 = Selected("q0_pass_through", bid, select=("auction", "bidder", "price", "dateTime", "extra"))

q1 = Selected(
    "q1_euros",
    bid,
    select={
        "auction": "auction",
        "bidder": "bidder",
        "price": "0.908 * price",
        "dateTime": "dateTime",
        "extra": "extra",
    },
)

q2 = Selected("q2_some_auctions", bid, select=("auction", "price"), where="auction % 123 = 0")

q3 = View(
    "q3_local_items",
    """
    select p.name, p.city, p.state, a.id
    from auction a join person p on a.seller = p.id
    where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    of=(auction, person),
    key=("id",),
)

q4_final_price = View(
    "q4_final_price",
    """
    select a.id, a.category, max(b.price) as final
    from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
    group by a.id, a.category
    """,
    of=(auction, bid),
    key=("id",),
)

q4 = View(
    "q4_category_price",
    "select category as id, sum(final) div count(*) as final from q4_final_price group by category",
    of=(q4_final_price,),
    key=("id",),
)

q5_bids_of_window = Windowed(
    "q5_bids_of_window", bid, Sliding("10 seconds", "2 seconds"), {"num": agg.count()}, by=("auction",)
)

q5 = View(
    "q5_hot_items",
    """
    select auction, num, window_start, window_end
    from (select *, max(num) over (partition by window_end) as most from q5_bids_of_window)
    where num = most
    """,
    of=(q5_bids_of_window,),
    key=("window_end",),
)

q9 = View(
    "q9_winning_bid",
    """
    select id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
        auction, bidder, price, bid_dateTime, bid_extra
    from (
        select a.*, b.auction, b.bidder, b.price, b.dateTime as bid_dateTime, b.extra as bid_extra,
            row_number() over (partition by a.id order by b.price desc, b.dateTime, b.bidder, b.extra) as place
        from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
    )
    where place = 1
    """,
    of=(auction, bid),
    key=("id",),
)

q6 = View(
    "q6_seller_price",
    """
    select seller, id,
        sum(price) over (partition by seller order by bid_dateTime, id rows between 10 preceding and current row)
            div count(*) over (partition by seller order by bid_dateTime, id rows between 10 preceding and current row)
            as avg_price
    from q9_winning_bid
    """,
    of=(q9,),
    key=("seller",),
)


def highest(bids: pd.DataFrame) -> pd.DataFrame:
    """The bids of a window with the highest price, one or several."""
    return bids.loc[bids.price == bids.price.max(), ["auction", "bidder", "price", "dateTime", "extra"]]


q7 = Windowed(
    "q7_highest_bid",
    bid,
    Tumbling("10 seconds"),
    function=WindowFunction(
        highest, returns="auction bigint, bidder bigint, price bigint, dateTime timestamp, extra string"
    ),
)


def new_seller(key: Any, start: int, end: int, persons: list[Any], auctions: list[Any]) -> Iterator[dict[str, Any]]:
    """The person, where there are auctions of theirs in the window in which they have registered."""
    if auctions:
        yield from ({"name": name} for name in dict.fromkeys(each.name for each in persons))


q8 = CoGrouped("q8_new_seller", person, auction, {"id": "seller"}, Tumbling("10 seconds"), "name string", new_seller)

q10_rows = Selected(
    "q10_rows",
    bid,
    select={
        "auction": "auction",
        "bidder": "bidder",
        "price": "price",
        "dateTime": "dateTime",
        "extra": "extra",
        "dt": "date_format(dateTime, 'yyyy-MM-dd')",
        "hm": "date_format(dateTime, 'HH:mm')",
    },
)
q10 = Delivery("q10_files", q10_rows, CsvFiles("exports/bid", by="hour"))

q11 = Windowed("q11_sessions", bid, SessionWindow("10 seconds"), {"bid_count": agg.count()}, by=("bidder",))

q12 = Windowed(
    "q12_processing_time", bid_as_it_came, Tumbling("10 seconds"), {"bid_count": agg.count()}, by=("bidder",)
)


def q13_side_input(address: str) -> Enriched:
    """Bids with the value that the Delta table there, of `key` and `value`, has for their auction."""
    return Enriched(
        "q13_side_input",
        bid,
        DimensionLookup(address, on={"key": "key"}, columns=("value",)),
        {"value": "string"},
        select={
            "auction": "auction",
            "bidder": "bidder",
            "price": "price",
            "dateTime": "dateTime",
            "key": "auction % 10000",
        },
        key=("key",),
    )


q14 = Selected(
    "q14_calculation",
    bid,
    select={
        "auction": "auction",
        "bidder": "bidder",
        "price": "0.908 * price",
        "bidTimeType": """
            case when hour(dateTime) between 8 and 18 then 'dayTime'
                 when hour(dateTime) <= 6 or hour(dateTime) >= 20 then 'nightTime'
                 else 'otherTime' end
        """,
        "dateTime": "dateTime",
        "extra": "extra",
        "c_counts": "length(extra) - length(replace(extra, 'c', ''))",
    },
    where="0.908 * price > 1000000 and 0.908 * price < 50000000",
)

STATISTICS = """
    count(*) as total_bids,
    count(*) filter (where price < 10000) as rank1_bids,
    count(*) filter (where price >= 10000 and price < 1000000) as rank2_bids,
    count(*) filter (where price >= 1000000) as rank3_bids,
    count(distinct bidder) as total_bidders,
    count(distinct bidder) filter (where price < 10000) as rank1_bidders,
    count(distinct bidder) filter (where price >= 10000 and price < 1000000) as rank2_bidders,
    count(distinct bidder) filter (where price >= 1000000) as rank3_bidders,
    count(distinct auction) as total_auctions,
    count(distinct auction) filter (where price < 10000) as rank1_auctions,
    count(distinct auction) filter (where price >= 10000 and price < 1000000) as rank2_auctions,
    count(distinct auction) filter (where price >= 1000000) as rank3_auctions
"""

q15 = View(
    "q15_bidding_statistics",
    f"select date_format(dateTime, 'yyyy-MM-dd') as day, {STATISTICS} from bid group by day",
    of=(bid,),
    key=("day",),
)

q16 = View(
    "q16_channel_statistics",
    f"""
    select channel, date_format(dateTime, 'yyyy-MM-dd') as day, max(date_format(dateTime, 'HH:mm')) as minute,
        {STATISTICS}
    from bid group by channel, day
    """,
    of=(bid,),
    key=("channel", "day"),
)

q17 = View(
    "q17_auction_statistics",
    """
    select auction, date_format(dateTime, 'yyyy-MM-dd') as day,
        count(*) as total_bids,
        count(*) filter (where price < 10000) as rank1_bids,
        count(*) filter (where price >= 10000 and price < 1000000) as rank2_bids,
        count(*) filter (where price >= 1000000) as rank3_bids,
        min(price) as min_price, max(price) as max_price, sum(price) div count(*) as avg_price,
        sum(price) as sum_price
    from bid group by auction, day
    """,
    of=(bid,),
    key=("auction", "day"),
)

q18 = View(
    "q18_last_bid",
    """
    select auction, bidder, price, channel, url, dateTime, extra
    from (
        select *, row_number() over (partition by bidder, auction order by dateTime desc, price, extra) as place
        from bid
    )
    where place = 1
    """,
    of=(bid,),
    key=("bidder", "auction"),
)

q19 = View(
    "q19_top_prices",
    """
    select *
    from (
        select *, row_number() over (partition by auction order by price desc, dateTime, extra) as rank_number
        from bid
    )
    where rank_number <= 10
    """,
    of=(bid,),
    key=("auction",),
)

q20 = View(
    "q20_bid_with_auction",
    """
    select b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime as bid_dateTime, b.extra as bid_extra,
        a.itemName, a.description, a.initialBid, a.reserve, a.dateTime as auction_dateTime, a.expires, a.seller,
        a.category, a.extra as auction_extra
    from bid b join auction a on b.auction = a.id
    where a.category = 10
    """,
    of=(bid, auction),
    key=("auction",),
)

# Spark gives an empty text where nothing matches, and Flink null.
CHANNEL_ID = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"

q21 = Selected(
    "q21_channel_id",
    bid,
    select={
        "auction": "auction",
        "bidder": "bidder",
        "price": "price",
        "channel": "channel",
        "channel_id": f"""
            case lower(channel)
                when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
                else {CHANNEL_ID} end
        """,
    },
    where=f"{CHANNEL_ID} is not null or lower(channel) in ('apple', 'google', 'facebook', 'baidu')",
)

q22 = Selected(
    "q22_url_directories",
    bid,
    select={
        "auction": "auction",
        "bidder": "bidder",
        "price": "price",
        "channel": "channel",
        "dir1": "split_part(url, '/', 4)",
        "dir2": "split_part(url, '/', 5)",
        "dir3": "split_part(url, '/', 6)",
    },
)

by_operators = (q0, q1, q2, q5_bids_of_window, q5, q7, q8, q10_rows, q11, q12, q14, q21, q22)
by_views = (q3, q4_final_price, q4, q9, q6, q15, q16, q17, q18, q19, q20)
pipeline = Pipeline(
    name="nexmark",
    streams=(person, auction, bid, bid_as_it_came),
    operators=(*by_operators, *by_views),
    deliveries=(q10,),
)
