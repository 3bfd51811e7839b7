"""An erasure takes one person out of everything, and nobody else out of anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from streaming import agg
from streaming.audit.laws import audit
from streaming.base.errors import ErasureError
from streaming.declare.delivery import Delivery
from streaming.declare.enriched import Enriched, LookupRequest
from streaming.declare.pipeline import Pipeline
from streaming.declare.rule import Rule
from streaming.declare.selected import Selected
from streaming.declare.windowed import Windowed
from streaming.deliveries.ledger import SCHEMA
from streaming.lake.lake import Lake
from streaming.operations.doctor import examine
from streaming.operations.erasure import erasing
from streaming.operations.erasure.erasing import erase, preview_erasure
from streaming.operations.erasure.proof import prove
from streaming.operations.erasure.record import erasures
from streaming.operations.erasure.rows import Person
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import restore
from streaming.operations.savepoint import savepoint
from streaming.operators import generation_of
from streaming.operators.runtime import runtime_of
from streaming.service.drain import drain
from streaming.sinks.files import JsonLines
from streaming.tables import delta
from streaming.views.corrections import correct, plan
from streaming.windows.session import SessionWindow
from streaming.windows.window import Tumbling
from tests.streaming.keyed.functions import payloads, sums
from tests.streaming.keyed.functions import readings as plain
from tests.support.feeds import land
from tests.support.instants import NOW
from tests.support.runs import tuples

readings = replace(plain, rules=(Rule("cold", "temperature < 90"),))


async def doubled(row: Any, request: LookupRequest) -> dict[str, Any]:
    """The answer of a service that is told whose row it is."""
    return {"square": int(row.temperature * 2)}


COUNTED = {"readings": agg.count(), "greatest": agg.maximum("temperature")}
everybody = Windowed("everybody", readings, Tumbling("10 seconds"), COUNTED)
tens = replace(everybody, name="tens", by=("id",), late="update", allowed_lateness="15 seconds")
visits = Windowed("visits", readings, SessionWindow("4 seconds"), COUNTED, by=("id",))
totals = replace(sums, of=readings)
warm = Selected("warm", readings, select={"who": "id", "id": "id", "temperature": "temperature"})
squares = Enriched("squares", readings, doubled, {"square": "bigint"}, select=("id", "temperature"))
exported = Delivery("exported", readings, JsonLines("exports/readings"))
tens_delivery = Delivery("told", tens, JsonLines("exports/tens"), what="current")
pipeline = Pipeline(readings, (everybody, tens, visits, totals, warm, squares), deliveries=(exported, tens_delivery))

BATCHES = ("ada@1=1, bob@2=2, ada@12=3", "ada@4=4, bob@25=5, ada@26=6", "bob@3=7, ada@5=8, eve@41=9, bob@60=10")
REJECTED: list[Any] = [
    {"id": "ada", "timestamp": None, "temperature": 1.0},
    {"id": "bob", "timestamp": 1, "temperature": 99.0},
    b'{"id": "ada", broken',
    b"adamant noise",
]
ADA = Person("id", "ada")


def fed(spark: SparkSession, lake: Lake, *, without: str = "") -> None:
    """All batches, each drained and corrected, and compacted in between; of one person nothing, if so wished."""

    def kept(rows: list[Any]) -> list[Any]:
        return [row for row in rows if not without or without not in re.findall(r"\w+", str(row))]

    for drawn in (*map(payloads, BATCHES), REJECTED):
        land(readings.source.location(lake), kept(drawn))
        drain(spark, lake, pipeline, now=lambda: NOW)
        for view in pipeline.corrected:
            correct(spark, lake, view, [pending.day for pending in plan(spark, lake, view)], lambda: NOW)
    maintain(lake, pipeline)


def everything(spark: SparkSession, lake: Lake) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    dropped = ("_written_at", "_corrected_at", "_updated_at", "_asked_at", "_answered_at", "_step", "_batch", "_origin")
    return {
        (operator.name, what): tuples(read(spark).drop(*dropped))
        for operator in pipeline.operators
        for what, read in runtime_of(operator, lake).readable.items()
        if what == "current"
    }


def broken(spark: SparkSession, lake: Lake) -> list[str]:
    return [f"{finding.law} {finding.subject}" for finding in audit(spark, lake, pipeline) if not finding.holds]


@pytest.fixture(scope="module")
def erased(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Any, Any]:
    """A lake from which a person was erased, killed twice on the way; what was foretold, and what came of it."""
    lake = Lake(str(tmp_path_factory.mktemp("erased") / "lake"))
    fed(spark, lake)
    savepoint(lake, pipeline, "pinning", lambda: NOW)
    foretold = preview_erasure(spark, lake, pipeline, ADA)
    with pytest.raises(ErasureError, match=r"savepoints of pipeline 'readings' keep old versions: pinning\."):
        erase(spark, lake, pipeline, ADA, now=lambda: NOW)
    for died_at in ("rebuild_held", "_forget_history"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(erasing, died_at, lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                erase(spark, lake, pipeline, ADA, with_savepoints=True, now=lambda: NOW)
        assert [each.done_at for each in erasures(lake)] == [None]
        (unfinished,) = [each for each in examine(lake, pipeline) if each.kind == "erasure unfinished"]
        assert unfinished.advice.endswith("`tidemark erase readings --key id=...`")
    return lake, foretold, erase(spark, lake, pipeline, ADA, now=lambda: NOW)


@pytest.mark.long
def test_what_is_left_is_what_a_lake_has_that_the_person_never_came_to(
    spark: SparkSession, erased: tuple[Lake, Any, Any], tmp_path: Path
) -> None:
    lake, _, _ = erased
    never = Lake(str(tmp_path / "never"))
    fed(spark, never, without="ada")
    left, expected = everything(spark, lake), everything(spark, never)
    # The clock goes by what came, so what was late stays late: current results are the same, first ones need not be.
    same = [("everybody", "current"), ("tens", "current"), ("visits", "current"), ("warm", "current")]
    assert {each: left[each] for each in same} == {each: expected[each] for each in same}
    assert broken(spark, lake) == []


@pytest.mark.parametrize("name", ["ada", "José", '"quoted"', "Ålesund 5"])
def test_a_value_of_any_letters_is_told_in_a_nested_column(name: str) -> None:
    # Spark's JSON has letters as they are.
    nested = json.dumps({"who": {"id": name}}, ensure_ascii=False, separators=(",", ":"))
    assert re.search(Person("id", name)._field, nested)
    assert not re.search(Person("id", f"{name}x")._field, nested)


@pytest.mark.parametrize(
    ("name", "texts", "others"),
    [
        ("Ana", ["7;Ana;x", "Ana", "<Ana>"], ["7;Anaïs;x", "Ana_", "Ana1", "éAna", "Ana\u0301", "ana"]),
        ("Иван", ["Иван, Москва", "Иванов и Иван"], ["7;Иванов", "Иван٣"]),
        ("José", ["José."], ["Josée", "JosÉ"]),
        ("王芳", ["7;客户王芳已付款", "王芳"], ["王 芳", "王方"]),
        ("สมชาย", ["คุณสมชายจ่ายแล้ว"], ["สมชัย"]),
        ("a.b", ["x a.b y"], ["a-b", "xa.b", "a.b2"]),
    ],
)
def test_a_value_in_a_text_is_a_whole_word_in_every_language_for_the_deletion_and_for_the_proof(
    spark: SparkSession, name: str, texts: list[str], others: list[str]
) -> None:
    person = Person("name", name)
    rows = spark.createDataFrame([(text,) for text in [*texts, *others]], "payload string")
    assert [row["payload"] for row in rows.where(person.matches(rows)).collect()] == texts
    assert [text for text in [*texts, *others] if person.is_in_text(text)] == texts


def test_a_dead_letter_without_the_column_is_told_by_the_values_that_could_not_be_computed(spark: SparkSession) -> None:
    why = "column 'per' cannot be computed: 1 / length(id), of id='ada'"
    told = {
        0: ('{"per":null}', why),
        1: ('{"id":null,"per":null}', why),
        2: ('{"id":"eve"}', why),
        3: ("{}", "of id='adam'"),
    }
    letters = [{"batch": batch, "payload": payload, "error": error} for batch, (payload, error) in told.items()]
    rows = [{name: letter.get(name) for name in SCHEMA.names} for letter in letters]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
    assert [row["batch"] for row in frame.where(ADA.matches(frame)).collect()] == [0, 1]


@pytest.mark.long
def test_the_proof_names_what_was_removed_and_the_record_names_nobody(erased: tuple[Lake, Any, Any]) -> None:
    lake, foretold, done = erased
    assert foretold.rows["readings/log"] == 7 and foretold.savepoints == ("pinning",)
    assert foretold.unread == {"readings": 2}
    assert foretold.rebuilt == ("everybody", "tens", "visits", "sums", "warm")
    removed = done.erasure.tables
    assert removed["readings/log"].rows == 7 and removed["readings/squares"].rows == 5
    assert removed["readings/log"].rewritten >= 2 and removed["readings/log"].vacuumed >= 2
    assert done.rebuilt == foretold.rebuilt and (done.told, done.to_tell) == (("told",), ("exported",))
    (record,) = erasures(lake)
    assert record.done_at == NOW and record.is_of(pipeline, ADA) and not record.is_of(pipeline, Person("id", "bob"))
    # As a word: these letters may stand in a digest.
    told = json.dumps(DeltaTable(lake.path("erasures")).to_pyarrow_table().to_pylist(), default=str)
    assert not re.search(r"\bada\b", told)
    assert record.checked["data files"] > 5
    # Somebody else's are found, so the proof can fail; the word within a word is nobody's.
    assert prove(lake, pipeline, ADA).places == ()
    assert {place.split("/")[1] for place in prove(lake, pipeline, Person("id", "bob")).places} >= {
        "log",
        "tens",
        "squares",
    }
    log = DeltaTable(lake.log(readings)).to_pyarrow_table().to_pylist()
    assert sorted(bytes(row["_raw"]) for row in log if row["_rejected"])[0] == b"adamant noise"


@pytest.mark.long
def test_targets_of_what_is_current_are_told_and_no_version_of_old_can_be_read(
    spark: SparkSession, erased: tuple[Lake, Any, Any]
) -> None:
    lake, _, _ = erased
    files = sorted(Path(lake.path("exports/tens")).rglob("*.json*"))
    lines = [
        json.loads(line) for file in files if "_delivered" not in str(file) for line in file.read_text().splitlines()
    ]
    last = {
        (line["id"], line["window_start"]): line["_change"]
        for line in sorted(lines, key=lambda line: line["_revision"])
    }
    assert {change for (name, _), change in last.items() if name == "ada"} == {"delete"}
    assert {change for (name, _), change in last.items() if name != "ada"} == {"upsert"}
    for operator in pipeline.operators:
        table = DeltaTable(lake.table(operator))
        with pytest.raises(DeltaError):
            DeltaTable(lake.table(operator), table.version() - 1)
    # The pipeline goes on, and what comes is delivered once.
    land(readings.source.location(lake), payloads("bob@80=1, eve@95=2"))
    assert drain(spark, lake, pipeline, now=lambda: NOW).waiting == {}
    assert broken(spark, lake) == []


@pytest.mark.long
def test_numbers_of_several_people_can_be_kept_and_the_audit_knows(spark: SparkSession, lake: Lake) -> None:
    kept = Pipeline(readings, (everybody, totals))
    for drawn in BATCHES:
        land(readings.source.location(lake), payloads(drawn))
        drain(spark, lake, kept, now=lambda: NOW)
    before = tuples(runtime_of(everybody, lake).readable["first"](spark))
    with pytest.raises(ErasureError, match=r"no stream of pipeline 'readings' has a column 'name': readings has id"):
        erase(spark, lake, kept, Person("name", "ada"))
    with pytest.raises(ErasureError, match="write --key COLUMN=VALUE"):
        Person.of("ada")
    done = erase(spark, lake, kept, Person.of("id=ada"), keep_numbers=True, now=lambda: NOW)
    assert done.rebuilt == ("sums",) and list(done.erasure.kept) == ["everybody"]
    assert tuples(runtime_of(everybody, lake).readable["first"](spark)) == before
    findings = list(audit(spark, lake, kept))
    assert [finding for finding in findings if not finding.holds] == []
    assert any("1 days keep numbers of erased rows" in finding.compared for finding in findings)
    assert any("+ 5 erased" in finding.compared for finding in findings)


@pytest.mark.long
def test_numbers_that_are_kept_are_known_of_what_is_restored_and_not_of_what_is_built_anew(
    spark: SparkSession, lake: Lake
) -> None:
    kept = Pipeline(readings, (everybody,))
    for drawn in BATCHES:
        land(readings.source.location(lake), payloads(drawn))
        drain(spark, lake, kept, now=lambda: NOW)
    before = tuples(runtime_of(everybody, lake).readable["first"](spark))
    erase(spark, lake, kept, ADA, keep_numbers=True, now=lambda: NOW)
    savepoint(lake, kept, "then", lambda: NOW)
    for generation in (1, 3):
        restore(spark, lake, kept, "then", lambda: NOW)
        assert generation_of(delta.open_table(lake.table(everybody))) == generation
        assert tuples(runtime_of(everybody, lake).readable["first"](spark)) == before
        assert _told(spark, lake, kept) == (True, [])
        if generation == 1:
            rebuild(spark, lake, kept, everybody, now=lambda: NOW)
            assert _told(spark, lake, kept) == (False, [])


def _told(spark: SparkSession, lake: Lake, of: Pipeline) -> tuple[bool, list[str]]:
    """Whether the audit says that numbers of erased rows are kept, and what is broken."""
    findings = list(audit(spark, lake, of))
    keeps = any("1 days keep numbers of erased rows" in finding.compared for finding in findings)
    return keeps, [str(finding) for finding in findings if not finding.holds]
