"""`tidemark redeliver`, and what the other commands say of deliveries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines import flights as declared
from streaming.declare.delivery import Delivery
from streaming.lake.lake import Lake
from streaming.operations.maintenance import maintain
from streaming.service import take_lease
from streaming.sinks.postgres import Postgres
from streaming.sinks.rest import Rest
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import FIRST, LATE_ON_1, SECOND, THIRD
from tests.support.feeds import land_all
from tests.support.http_server import http_server
from tests.support.postgres import rows, run


@pytest.mark.long
def test_dead_letters_are_shown_sent_again_and_gone(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_server() as server:
        post = Delivery("post", declared.flights, Rest(server.url), select=("origin",))
        of = replace(declared.pipeline, deliveries=(post,))
        monkeypatch.setattr(declared, "pipeline", of)
        server.answer = lambda posted: 422 if {"origin": "JFK"} in posted.rows else 200
        land_all(lake, declared.flights, FIRST)
        assert tidemark("run flights")[0] == 0
        assert server.rows() == [{"origin": "EWR"}, {"origin": "LGA"}]

        code, text = tidemark("show flights post_dead")
        assert code == 0 and '{"origin":"JFK"}' in text and "422" in text
        code, text = tidemark("redeliver flights post")
        assert (
            code == 0
            and "1 dead letters: 0 arrived, 1 stay." in text
            and "Next: tidemark show flights post_dead" in text
        )
        assert {"post_dead"} <= {entry.table for entry in maintain(lake, of)}
        server.answer = lambda posted: 503
        code, text = tidemark("redeliver flights post")
        assert code == 1 and "The target does not take it" in text and "Next: tidemark run flights" in text
        server.answer = lambda posted: 200
        code, text = tidemark("redeliver flights post")
        assert code == 0 and "1 dead letters: 1 arrived, 0 stay." in text and "Next: tidemark audit flights" in text
        assert [row["origin"] for row in server.rows()] == ["EWR", "LGA", "JFK"]

        monkeypatch.setattr(declared, "pipeline", replace(of, deliveries=(replace(post, where="origin <> 'LGA'"),)))
        code, text = tidemark("run flights")
        assert code == 1 and "where was nothing and is origin <> 'LGA'" in text and "--go-on" in text
        assert tidemark("status")[1].count("post_") == 0
        code, text = tidemark("redeliver flights post --all")
        assert code == 0 and "post begins anew." in text
        assert [row["origin"] for row in server.rows()][3:] == ["EWR", "JFK"]
        assert {posted.key for posted in server.taken[-1:]} == {"flights/post/1/0"}

        monkeypatch.setattr(declared, "pipeline", replace(of, deliveries=()))
        code, text = tidemark("status")
        assert code == 0 and text.count("belongs to view 'post', which is not declared; `tidemark drop post`") == 2
        assert tidemark("drop post --yes")[1].count("removed ") == 2
        monkeypatch.setattr(declared, "pipeline", of)

        code, text = tidemark("redeliver flights nonesuch")
        assert code == 1 and "has no delivery 'nonesuch'; its deliveries: post" in text
        assert tidemark("redeliver flights post --all --go-on")[0] == 1
        code, text = tidemark("redeliver flights post --day 2013-01-01")
        assert code == 1 and "'post' cannot deliver a day again: Rest keeps every row that it gets" in text


def test_a_day_that_is_named_is_there_again(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    to = Postgres("departures", key=("origin",), connection=postgres)
    table = Delivery("table", declared.flights, to, select=("origin", "carrier"))
    monkeypatch.setattr(declared, "pipeline", replace(declared.pipeline, deliveries=(table,)))
    land_all(lake, declared.flights, FIRST)
    assert tidemark("run flights")[0] == 0
    before = rows(postgres, "select origin, carrier from departures order by 1")
    run(postgres, "update departures set carrier = '??'")
    code, text = tidemark("redeliver flights table --day 2013-01-01")
    assert code == 0 and "table: 2013-01-01 is there again." in text and "Next: tidemark audit flights" in text
    assert rows(postgres, "select origin, carrier from departures order by 1") == before
    code, text = tidemark("redeliver flights table --day 2013-01-01 --day 2013-02-01")
    assert code == 1 and "'flights' has no row of 2013-02-01 for 'table'" in text


@pytest.mark.long
def test_what_a_correction_has_changed_is_delivered_with_it_unless_another_process_runs_the_pipeline(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    current = Delivery("now", declared.departures_by_origin, Postgres("departures", connection=postgres), "current")
    of = replace(declared.pipeline, deliveries=(current,))
    monkeypatch.setattr(declared, "pipeline", of)
    for batch in (FIRST, SECOND, THIRD, LATE_ON_1):
        land_all(lake, declared.flights, batch)
        assert tidemark("run flights")[0] == 0
    counted = "select sum(flights) from departures where window_start < '2013-01-02'"
    ((before,),) = rows(postgres, counted)
    with take_lease(lake, of, "stream"):
        code, text = tidemark("correct flights")
        assert code == 0 and "1 window corrected" in text
        assert "(stream, since " in text and "runs flights, and delivers what changed: now" in text
    assert rows(postgres, counted) == [(before,)]
    code, text = tidemark("audit flights --deliveries")
    assert code == 0 and "every law holds, and 1 row still to be delivered" in text
    code, text = tidemark("correct flights")
    assert code == 0 and "now: 1 row delivered" in text
    assert rows(postgres, counted) == [(before + 1,)]
    assert "still to be delivered" not in tidemark("audit flights --deliveries")[1]
    changed = replace(of, deliveries=(replace(current, where="flights > 0"),))
    monkeypatch.setattr(declared, "pipeline", changed)
    code, text = tidemark("correct flights")
    assert code == 1 and "where was nothing and is flights > 0" in text and "--go-on" in text
