"""`tidemark explain` of a stream says of each part where it is computed, and why there."""

from __future__ import annotations

import pytest

from platform_assets.texts.ingest import part_row, summary
from streaming.declare import Rule
from streaming.log import Place, Places
from tests.platform_assets.conftest import Tidemark


def test_a_stream_whose_parts_are_all_proven_is_ingested_by_tasks(tidemark: Tidemark) -> None:
    code, text = tidemark("explain flights")
    assert code == 0
    assert "flights: ingest of flights" in text
    assert "Tasks ingest flights" in text
    assert "runs in Spark" not in text
    assert "tidemark bench flights" in text


def test_the_careful_way_is_told_whatever_tasks_could(tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "careful")
    code, text = tidemark("explain flights")
    assert code == 0
    assert "TIDEMARK_INGEST=careful: Spark ingests all of flights" in text


def test_neither_a_view_nor_a_stream_is_refused_with_the_views(tidemark: Tidemark) -> None:
    code, text = tidemark("explain nonesuch")
    assert code == 1
    assert "there is no view 'nonesuch'" in text


def test_each_part_says_who_computes_it_and_when() -> None:
    why = "the function xxhash64 runs in Spark"
    rule = Place("rule", "odd", "xxhash64(id) % 2 = 1", why, after=True)
    assert part_row(rule) == ("rule", "odd: xxhash64(id) % 2 = 1", "Spark, over what tasks have written", why)
    assert part_row(Place("derived column", "n", "hash(id)", why))[2] == "Spark"
    assert part_row(Place("late", "by_minute"))[:3] == ("late rows", "by_minute", "tasks")
    assert "two to three times" in summary("s", Places((rule,), None), "fast")
    judged = Places((rule,), _SOME_JUDGEMENT, (Rule("odd", rule.sql),))  # type: ignore[arg-type]
    assert "odd is judged by Spark afterwards" in summary("s", judged, "fast")


_SOME_JUDGEMENT = object()
