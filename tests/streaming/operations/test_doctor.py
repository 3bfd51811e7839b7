"""Damage made on purpose: each is named, none is made worse, and what is healed is healed."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import LeaseError
from streaming.declare.pipeline import Pipeline
from streaming.lake.lake import Lake
from streaming.log.batches import archive_batches
from streaming.operations import doctor
from streaming.operations.doctor import Ailment, examine, heal
from streaming.operations.savepoint import savepoint
from streaming.service.drain import drain
from streaming.service.lease import take_lease
from streaming.sources.files import move_files
from streaming.tables import delta
from streaming.windows.window import Tumbling
from tests.streaming.keyed.functions import payloads, readings, sums
from tests.support.damages import DAMAGES, HEALED, older_log, pipeline, tens
from tests.support.instants import NOW
from tests.support.runs import run


@pytest.fixture(scope="module")
def sound(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with three batches and a savepoint after the second."""
    lake = Lake(str(tmp_path_factory.mktemp("sound") / "lake"))
    run(spark, lake, pipeline, payloads("a@1=1, b@2=2"), payloads("a@12=3, b@25=4"))
    savepoint(lake, pipeline, "second", lambda: NOW)
    run(spark, lake, pipeline, payloads("a@41=5"))
    archive_batches(lake, readings)
    return lake


@pytest.fixture
def lake(sound: Lake, tmp_path: Path) -> Lake:
    """A copy of it, whose checkpoint knows where the landing folder is."""
    shutil.copytree(sound.root, tmp_path / "lake")
    copied = Lake(str(tmp_path / "lake"))
    landing = readings.source.location(sound)
    move_files(copied.checkpoint(readings, "log"), landing, landing, readings.source.location(copied))
    return copied


FOLLOWS = {"savepoint damaged"}
"""A savepoint needs the tables that it is of, so it may be damaged with any of them."""


HIDING = {"table unreadable", "log missing", "table missing", "history gone", "checkpoint damaged"}
HIDING |= {"checkpoint missing", "checkpoint of another query", "batches missing"}
"""What keeps the doctor from looking further at the same table or checkpoint."""


def kinds(lake: Lake, of: Pipeline = pipeline) -> set[str]:
    return {ailment.kind for ailment in examine(lake, of)}


def test_nothing_is_found_in_a_lake_that_is_sound(lake: Lake) -> None:
    assert examine(lake, pipeline) == []


@pytest.mark.sampled
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_healing_makes_nothing_worse(lake: Lake, name: str) -> None:
    kind, damage, follows = DAMAGES[name]
    damage(lake)
    diagnoses = kinds(lake)
    assert {kind, *follows} <= diagnoses <= {kind, *follows, *FOLLOWS}, examine(lake, pipeline)
    before = {path: path.read_bytes() for path in Path(lake.root).rglob("*.parquet")}

    healed, left = heal(lake, pipeline)
    expected = {kind} & HEALED if name != "a planned batch half written" else {kind}
    assert {ailment.kind for ailment in healed} == expected
    assert {ailment.kind for ailment in left} == diagnoses - expected
    gone = {path for path in before if not path.exists()}
    assert all("sums_next" in path.parts for path in gone)
    assert {path: path.read_bytes() for path in before.keys() - gone} == {p: before[p] for p in before.keys() - gone}
    assert all(ailment.means and ailment.advice for ailment in left)


def test_what_is_put_right_before_the_doctor_heals_is_left_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    healed: list[str] = []
    found = [
        [Ailment(name, "s", "means", "advice", partial(healed.append, name)) for name in ("stays", "passes")],
        [Ailment("stays", "s", "means", "advice", partial(healed.append, "stays"))],
        [],
    ]
    monkeypatch.setattr(doctor, "examine", lambda *_: found.pop(0))
    assert [ailment.kind for ailment in heal(lake, pipeline)[0]] == ["stays", "passes"]
    assert healed == ["stays"]


def test_a_view_that_is_declared_in_another_way_is_named_with_what_differs(lake: Lake) -> None:
    halves = replace(pipeline, operators=(replace(tens, window=Tumbling("5 seconds")), sums))
    (ailment,) = examine(lake, halves)
    assert ailment.kind == "another declaration" and "window was Tumbling" in ailment.means


def test_a_lake_whose_log_is_an_older_copy_reads_the_rows_again_once_it_is_healed(
    spark: SparkSession, lake: Lake
) -> None:
    older_log(lake)
    # The tables of the same time, and a delivery that has not begun.
    for operator in (tens, sums):
        for suffix in ("", "state"):
            if delta.exists(lake.table(operator, suffix)):
                shutil.rmtree(lake.table(operator, suffix))
    whole = replace(pipeline, deliveries=())
    assert kinds(lake, whole) - FOLLOWS == {"checkpoint newer than the log"}
    heal(lake, whole)
    drain(spark, lake, whole, now=lambda: NOW)
    assert kinds(lake, whole) <= FOLLOWS
    state = DeltaTable(lake.table(sums, "state")).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["total"] for row in state} == {"a": 9, "b": 6}


def test_a_pipeline_that_runs_is_examined_and_not_healed(lake: Lake) -> None:
    with take_lease(lake, pipeline):
        assert examine(lake, pipeline) == []
        with pytest.raises(LeaseError, match="already held"):
            heal(lake, pipeline)


@contextmanager
def nobody(lake: Lake) -> Iterator[None]:
    """Be somebody whose the lake is, and who is not root: root may do everything."""
    place = Path(lake.root)
    if os.geteuid() != 0:
        yield
        return
    for path in (place, *place.rglob("*")):
        if path.stat().st_uid == 0 and path.name != "_delta_log":
            os.chown(path, 65534, 65534)
    for path in place.parents:
        if path.is_relative_to(tempfile.gettempdir()) and str(path) != tempfile.gettempdir():
            path.chmod(path.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_is_removed_while_it_is_looked_at_is_not_taken_for_forbidden(tmp_path: Path) -> None:
    assert not doctor._is_forbidden(tmp_path / "gone", os.R_OK)


def test_what_another_user_has_left_is_named_with_the_command_that_gives_it_back_and_nothing_is_touched(
    lake: Lake,
) -> None:
    forbidden = Path(lake.table(tens), "_delta_log")
    for path in Path(lake.root).rglob("_delta_log"):
        if path != forbidden and os.geteuid() == 0:
            os.chown(path, 65534, 65534)
    forbidden.chmod(0o555)
    with nobody(lake):
        (problem,) = examine(lake, pipeline)
        assert (problem.kind, problem.subject) == ("permissions wrong", lake.path("readings"))
        assert str(forbidden) in problem.means and f"chmod -R u+rwX {problem.subject}" in problem.advice
        assert heal(lake, pipeline) == ([], [problem])
        # Not even the folder can be looked into.
    forbidden.chmod(0o000)
    with nobody(lake):
        assert [ailment.kind for ailment in examine(lake, pipeline)] == ["permissions wrong"]
    forbidden.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(forbidden, 65534, 65534)
    with nobody(lake):
        assert examine(lake, pipeline) == []


def test_all_that_can_be_healed_is_healed_at_once_and_what_comes_then_passes_the_audit(
    spark: SparkSession, lake: Lake
) -> None:
    # What hides others would have them healed later.
    healable = HEALED - HIDING
    once = {kind: damage for kind, damage, follows in DAMAGES.values() if kind in healable and not follows}
    for damage in once.values():
        damage(lake)
    healed, left = heal(lake, pipeline)
    assert {ailment.kind for ailment in healed} == {*once} and left == []
    run(spark, lake, pipeline, payloads("a@60=7, b@61=8"))
    assert examine(lake, pipeline) == []
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
def test_of_ten_damages_at_random_what_can_be_is_healed_once_and_the_rest_is_named_and_left_alone(
    lake: Lake, seed: int
) -> None:
    drawn, done = random.Random(seed), dict[str, str]()
    for name in drawn.sample(sorted(DAMAGES), len(DAMAGES)):
        kind, damage, _ = DAMAGES[name]
        # What an earlier one has taken away cannot be damaged any more.
        with suppress(Exception):
            damage(lake)
            done[name] = kind
        if len(done) == 10:
            break
    assert len(done) == 10
    diagnoses = kinds(lake)
    assert diagnoses and (diagnoses & HIDING or {*done.values()} <= diagnoses), (done, diagnoses)
    before = {path: path.read_bytes() for path in Path(lake.root).rglob("*.parquet") if "sums_next" not in path.parts}
    healed, left = heal(lake, pipeline)
    assert {ailment.kind for ailment in healed} <= HEALED | {"checkpoint damaged"}
    assert all(ailment.means and ailment.advice for ailment in left)
    assert {path: path.read_bytes() for path in before} == before
    # Nothing is healed twice, and nothing that was found is forgotten.
    assert heal(lake, pipeline) == ([], left)
    assert diagnoses - {ailment.kind for ailment in healed} <= {ailment.kind for ailment in left} | FOLLOWS
