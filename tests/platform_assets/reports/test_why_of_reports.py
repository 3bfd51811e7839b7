"""Numbers of older publications: each is explained by the versions that its own publication has pinned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from platform_assets.reports.publication import (
    batches_of,
    is_of_older_results,
    publications,
    published_as_of,
    put_publication,
    read_publication,
)
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from platform_assets.reports.why import why_of_report
from quality import Suite, unique
from quality.verdicts import write_rows
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Why, Windowed, agg
from streaming.base import ReadError
from streaming.changes import publish
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import correct

sales = Stream(
    "sales",
    Files("landing/sales"),
    Json("country string, at timestamp, amount bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 days"),
)
by_country = Windowed("by_country", sales, Tumbling("10 seconds"), {"total": agg.sum("amount")}, by=("country",))
shop = Pipeline(sales, (by_country,))


def totals(sources: Sources) -> DataFrame:
    return (
        sources.current(by_country).groupBy("country").agg({"total": "sum"}).toDF("country", "total").orderBy("country")
    )


def doubled(sources: Sources) -> DataFrame:
    return totals(sources).selectExpr("country", "total * 2 as total")


def suite(sources: Sources) -> Suite:
    return Suite((unique("one_row", ["country"]),))


report = Report(shop, "Totals.", (Section("totals", "By country.", totals, suite),))


def sale(country: str, seconds: float, amount: int) -> dict[str, Any]:
    return {"country": country, "at": at(seconds).isoformat(), "amount": amount}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """```
    batch 0    de@1=5
    batch 1    it@90=1                    the window at 0 is closed: de 5
    run one    de 5
    batch 2    de@2=7  fr@91=2            of de late
    corrected  de 12
    batch 3    it@200=4                   the window at 90 is closed: fr 2, it 1
    run two    de 12  fr 2  it 1
    ```
    """
    there = Lake(str(tmp_path_factory.mktemp("shop") / "lake"))
    run(spark, there, shop, [sale("de", 1, 5)], [sale("it", 90, 1)])
    judge_and_publish(spark, there, report, "one")
    run(spark, there, shop, [sale("de", 2, 7), sale("fr", 91, 2)])
    assert correct(spark, there, by_country, lambda: NOW)
    publish(spark, there, by_country)
    run(spark, there, shop, [sale("it", 200, 4)])
    judge_and_publish(spark, there, report, "two")
    return there


def told(answer: Why) -> tuple[Any, ...]:
    """The run that has published it, the number, whether it is recomputed, and the amounts that it comes down to."""
    amounts = sorted(row.values["amount"] for each in answer.upstream for row in each.counting)
    return answer.versions["run"], answer.published[0]["total"], answer.agrees, amounts


def test_the_first_publication_that_had_a_key_is_explained_by_its_own_pins(spark: SparkSession, lake: Lake) -> None:
    first = why_of_report(spark, lake, report, {"country": "de"}, "first")
    assert (told(first), first.what, first.notes, first.holds) == (("one", 5, True, [5]), "first", (), True)
    assert [row.values["total"] for row in first.inputs] == [5]
    assert {verdict.version for verdict in first.verdicts if verdict.table == "reports/totals"} == {0}
    later = why_of_report(spark, lake, report, {"country": "fr"}, "first")
    assert told(later) == ("two", 2, True, [2])
    with pytest.raises(ReadError, match="no row of report 'totals' has country=xx"):
        why_of_report(spark, lake, report, {"country": "xx"}, "first")


def test_as_of_a_batch_it_is_what_was_published_of_these_batches(spark: SparkSession, lake: Lake) -> None:
    assert told(why_of_report(spark, lake.as_of({"sales": 1}), report, {"country": "de"})) == ("one", 5, True, [5])
    with pytest.raises(ReadError, match=r"no row of report 'totals' has country=fr. Near are: country=de"):
        why_of_report(spark, lake.as_of({"sales": 1}), report, {"country": "fr"})


@pytest.mark.long
def test_of_batches_of_which_nothing_was_published_it_is_what_it_would_have_been(
    spark: SparkSession, lake: Lake
) -> None:
    assert published_as_of(lake.as_of({"sales": 2}), report) is None
    answer = why_of_report(spark, lake.as_of({"sales": 2}), report, {"country": "de"})
    (row,) = answer.recomputed
    assert (answer.agrees, answer.published) == (None, ())
    assert answer.said == f"nothing was published of these batches; it would have been country=de total={row['total']}"
    assert row["total"] == sum(result.values["total"] for result in answer.inputs)
    assert [each.agrees for each in answer.upstream] == [True]


def test_a_section_that_computes_otherwise_by_now_is_told(spark: SparkSession, lake: Lake) -> None:
    other = replace(report, sections=(replace(report.sections[0], rows=doubled),))
    answer = why_of_report(spark, lake, other, {"country": "de"}, "first")
    assert (answer.agrees, answer.holds) == (False, False)
    assert answer.said.endswith("total is 5 and should be 10")


def renamed(sources: Sources) -> DataFrame:
    return totals(sources).withColumnRenamed("country", "nation")


def test_a_publication_whose_columns_are_declared_otherwise_by_now_is_not_recomputed(
    spark: SparkSession, lake: Lake
) -> None:
    other = replace(report, sections=(replace(report.sections[0], rows=renamed),))
    answer = why_of_report(spark, lake, other, {"country": "de"}, "first")
    assert (answer.published[0]["total"], answer.agrees, answer.holds) == (5, None, True)
    assert answer.said.startswith("it cannot be recomputed: ")


def test_a_section_that_was_declared_since_hides_no_older_publication(spark: SparkSession, lake: Lake) -> None:
    more = replace(report, sections=(*report.sections, Section("twice", "Twice.", doubled, suite)))
    assert [each.run_id for each in publications(lake, more)] == ["two", "one"]
    assert told(why_of_report(spark, lake, more, {"country": "de"}, "first")) == ("one", 5, True, [5])
    with pytest.raises(ReadError, match="no section of report 'totals' has all of other"):
        why_of_report(spark, lake, more, {"other": "de"}, "first")


def test_older_publications_that_nobody_knows_are_told_whichever_is_chosen(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """```
    run one      nobody knows it any more
    run two      de 12  fr 2  it 1
    run three    se 8
    ```
    """
    there = Lake(str(tmp_path / "lake"))
    copytree(lake.path("reports"), there.path("reports"))
    section = there.report("totals")
    DeltaTable(section).create_checkpoint()
    Path(section, "_delta_log", f"{0:020}.json").unlink()
    newest = read_publication(there, "totals")
    assert newest is not None
    says = {"report": "totals", "run_id": "three", "pins": newest.pins.to_json()}
    rows = pa.table({"country": ["se"], "total": [8]})
    version = write_rows(section, rows, "overwrite", metadata=says, description="By country.")
    put_publication(there, replace(newest, run_id="three", versions={"totals": version}))
    assert [(each.run_id, each.versions) for each in publications(there, report)] == [
        ("three", {"totals": 2}),
        ("two", {"totals": 1}),
    ]
    for country, run_id in {"se": "three", "fr": "two"}.items():
        answer = why_of_report(spark, there, report, {"country": country}, "first")
        assert answer.versions["run"] == run_id
        assert "nobody knows any more what was published before run two" in answer.notes


def test_without_a_key_no_publication_is_read(spark: SparkSession, lake: Lake) -> None:
    with (
        without_files(*DeltaTable(lake.report("totals"), 0).file_uris()),
        pytest.raises(ReadError, match="nothing tells which row of 'totals' is meant"),
    ):
        why_of_report(spark, lake, report, {}, "first")


@contextmanager
def replaced(table: str) -> Iterator[None]:
    """Another table of as many versions in place of one."""
    versions, away = DeltaTable(table).version(), Path(f"{table}.away")
    Path(table).rename(away)
    try:
        for number in range(versions + 1):
            write_deltalake(table, pa.table({"number": [number]}), mode="append")
        yield
    finally:
        rmtree(table)
        away.rename(table)


def test_tables_in_whose_place_there_is_another_one_are_not_read_as_pinned(spark: SparkSession, lake: Lake) -> None:
    with replaced(lake.table(by_country)):
        answer = why_of_report(spark, lake, report, {"country": "de"}, "first")
    assert (answer.published[0]["total"], answer.agrees, answer.holds, answer.inputs) == (5, None, True, ())
    (note,) = answer.notes
    assert "another table was built in place of" in note and "another table was built in place of" in answer.said
    publication = read_publication(lake, "totals")
    assert publication is not None and not is_of_older_results(publication)
    with replaced(lake.log(sales)):
        assert batches_of(lake, report, publication.pins) is None
        assert is_of_older_results(publication)


@contextmanager
def without_files(*files: str) -> Iterator[None]:
    """Files of tables that were cleaned away, while the commits are there."""
    away = [(Path(each), Path(f"{each}.away")) for each in files]
    try:
        for file, hidden in away:
            file.rename(hidden)
        yield
    finally:
        for file, hidden in away:
            hidden.rename(file)


def test_publications_whose_rows_were_cleaned_away_are_told(spark: SparkSession, lake: Lake) -> None:
    with without_files(*DeltaTable(lake.report("totals"), 0).file_uris()):
        first = why_of_report(spark, lake, report, {"country": "de"}, "first")
        with pytest.raises(ReadError, match=r"the rows that run one has published of report 'totals' .* cleaned away"):
            why_of_report(spark, lake.as_of({"sales": 1}), report, {"country": "de"})
    assert told(first) == ("two", 12, True, [5, 7])
    assert first.notes == ("1 older publication may have had it: the rows of it were cleaned away",)


def test_pins_of_a_lake_that_was_moved_name_no_batches(lake: Lake, tmp_path: Path) -> None:
    publication = read_publication(lake, "totals")
    assert publication is not None and batches_of(lake, report, publication.pins) == {"sales": 3}
    assert batches_of(Lake(str(tmp_path)), report, publication.pins) is None


def test_pinned_versions_that_were_cleaned_away_are_told(spark: SparkSession, lake: Lake) -> None:
    tables = (DeltaTable(lake.table(by_country, suffix)) for suffix in ("", "current"))
    with without_files(*(file for table in tables for file in table.file_uris())):
        answer = why_of_report(spark, lake, report, {"country": "de"}, "first")
    assert (answer.published[0]["total"], answer.agrees, answer.holds, answer.upstream) == (5, None, True, ())
    gone = "it cannot be recomputed: the versions that it was made from cannot be read any more: "
    assert answer.said.startswith(gone)
    (note,) = answer.notes
    assert note.startswith("the results of by_country that it was made from cannot be read: ")
