"""A query of NEXMark in Flink SQL: `python -m benchmarks.compare.flink_nexmark_job QUERY INPUT WORK RESULT`.

It runs in a Python of its own. The queries are those of github.com/nexmark/nexmark, but for the end of a window in q7,
and so are the settings of small batches. What changes in a result is written to files, exactly once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.compare.flink_job import streaming_environment

_SMALL_BATCHES = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
_TABLES = {
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,"
    " `dateTime` TIMESTAMP_LTZ(3), expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP_LTZ(3),"
    " extra STRING",
}
_BIDS_OF_WINDOW = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
"""
_QUERIES = {
    "q4": (
        "id BIGINT, final BIGINT",
        """
        SELECT Q.category, AVG(Q.final)
        FROM (
            SELECT MAX(B.price) AS final, A.category
            FROM auction A, bid B
            WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
            GROUP BY A.id, A.category
        ) Q
        GROUP BY Q.category
        """,
    ),
    "q5": (
        "auction BIGINT, num BIGINT, window_end TIMESTAMP(3)",
        f"""
        SELECT AuctionBids.auction, AuctionBids.num, AuctionBids.window_end
        FROM ({_BIDS_OF_WINDOW}) AS AuctionBids
        JOIN (
            SELECT MAX(CountBids.num) AS maxn, CountBids.window_start, CountBids.window_end
            FROM ({_BIDS_OF_WINDOW}) AS CountBids
            GROUP BY CountBids.window_start, CountBids.window_end
        ) AS MaxBids
        ON AuctionBids.window_start = MaxBids.window_start AND AuctionBids.window_end = MaxBids.window_end
            AND AuctionBids.num >= MaxBids.maxn
        """,
    ),
    "q7": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING",
        """
        SELECT B.auction, B.bidder, B.price, CAST(B.`dateTime` AS TIMESTAMP(3)), B.extra
        FROM bid B
        JOIN (
            SELECT MAX(price) AS maxprice, CAST(window_end AS TIMESTAMP_LTZ(3)) AS `dateTime`
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end
        ) B1
        ON B.price = B1.maxprice
        WHERE B.`dateTime` >= B1.`dateTime` - INTERVAL '10' SECOND AND B.`dateTime` < B1.`dateTime`
        """,
    ),
}


def main() -> None:
    """Everything in INPUT, to the end of the input."""
    query, source, work, result = sys.argv[1:]
    environment = streaming_environment(work)
    for key, value in _SMALL_BATCHES.items():
        environment.get_config().set(key, value)
    for name, columns in _TABLES.items():
        environment.execute_sql(f"""
            CREATE TABLE {name} ({columns}, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) WITH (
                'connector' = 'filesystem', 'path' = '{source}/{name}', 'format' = 'json',
                'json.timestamp-format.standard' = 'ISO-8601'
            )""")
    columns, sql = _QUERIES[query]
    environment.execute_sql(f"""
        CREATE TABLE results ({columns}) WITH (
            'connector' = 'filesystem', 'path' = '{work}/results', 'format' = 'debezium-json',
            'sink.rolling-policy.rollover-interval' = '1 s', 'sink.rolling-policy.check-interval' = '200 ms'
        )""")
    started = time.monotonic()
    environment.execute_sql(f"INSERT INTO results {sql}").wait()
    Path(result).write_text(json.dumps({"seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
