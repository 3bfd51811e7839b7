"""What tables say of how far they are, of functions of several streams, with rules, and of another generation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType, TimestampType

from streaming.base.errors import FencedError, OperatorError
from streaming.base.intervals import to_micros
from streaming.declare.enriched import Enriched
from streaming.declare.operator import PENDING, STATE, Operator
from streaming.declare.window_joined import WindowJoined
from streaming.lake.lake import Lake
from streaming.operations.doctor import examine_operator
from streaming.operators.as_of import version_through
from streaming.operators.declaration import create_table
from streaming.operators.progress import GENERATION, Progress
from streaming.queryable.keyed import StateOfKeys
from streaming.tables import delta
from streaming.views.steps import repaired
from streaming.windows.session import SessionWindow
from tests.streaming.keyed.connected import jumps_by_rule, met, numbers, words
from tests.support import lookups
from tests.support.instants import at

COLUMNS = StructType().add("id", IntegerType())
visits = WindowJoined("visits", numbers, words, ("id",), SessionWindow("1 minute"))


def note(lake: Lake, operator: Operator, suffix: str, numbers_kept: dict[str, int], **metadata: Any) -> None:
    uri = create_table(lake, operator, suffix, COLUMNS)
    delta.note(uri, says=metadata, numbers=numbers_kept)


def test_the_doctor_examines_a_function_with_rules(lake: Lake) -> None:
    note(lake, jumps_by_rule, "", {"through": 4})
    assert list(examine_operator(lake, jumps_by_rule)) == []


def test_of_a_lost_enrichment_the_doctor_advises_a_backup_and_no_rebuild(lake: Lake) -> None:
    """Its answers are nowhere else, and `rebuild` refuses it."""
    asked = Enriched("asked", numbers, lookups.after_a_while, {"square": "bigint"}, select=("id",))
    note(lake, asked, PENDING, {})
    (ailment,) = examine_operator(lake, asked)
    assert ailment.kind == "table missing"
    assert ailment.advice.startswith("restore it from a backup: its answers were given once")


def test_a_function_with_rules_has_versions_as_of_the_batches_of_its_data(lake: Lake) -> None:
    data, control = jumps_by_rule.streams[0].name, jumps_by_rule.pins[0].name
    for through in (0, 2):
        note(lake, jumps_by_rule, "", {"through": through}, through=through)
    table = delta.open_table(lake.table(jumps_by_rule))
    assert table is not None
    assert version_through(lake.as_of({data: 0, control: 7}), jumps_by_rule, table) == 1
    assert version_through(lake.as_of({data: 2, control: 7}), jumps_by_rule, table) == 2
    with pytest.raises(OperatorError, match=f"as of batch 1 of {data}: .* has those of: batch 2 of {data}, batch 0"):
        version_through(lake.as_of({data: 1, control: 7}), jumps_by_rule, table)


def test_latest_values_of_a_function_of_several_streams_name_the_batch_of_each(lake: Lake) -> None:
    note(lake, met, "", {})
    schema = COLUMNS.add("seen", ArrayType(StringType())).add("_timers", MapType(StringType(), TimestampType()))
    kept = {"through.numbers": 3, "closed.numbers": to_micros(at(10)), "through.words": 1}
    delta.note(create_table(lake, met, STATE, schema), says={}, numbers=kept)
    answer = StateOfKeys(met, lake).read({}, 10)
    assert (answer.batch, answer.watermark, answer.rows) == ({"numbers": 3, "words": 1}, None, [])


def test_lost_state_of_joint_sessions_that_were_built_anew_is_made_again(lake: Lake) -> None:
    """Its table will be of the generation of the first results, to which the fence of its first commit looks."""
    note(lake, visits, "", {GENERATION: 1, "through.numbers": 2, "through.words": 0, "batch": 2})
    published = Progress.now(lake, visits)
    kept = repaired(lake, visits, published)
    assert not kept.has_begun
    create_table(lake, visits, STATE, COLUMNS)
    kept.fence(visits, DeltaTable(lake.table(visits, STATE)))


def test_who_was_overtaken_is_told_what_differs_where_the_batches_are_the_same(lake: Lake) -> None:
    note(lake, visits, "", {GENERATION: 1, "through.numbers": 2, "through.words": 0, "batch": 2})
    table, there = DeltaTable(lake.table(visits)), Progress.now(lake, visits)
    batches = "batch 2 of numbers and batch 0 of words"
    with pytest.raises(FencedError, match=f"was at {batches} of generation 0 and is at {batches} of generation 1 now"):
        replace(there, generation=0).fence(visits, table)
    with pytest.raises(FencedError, match=f"{batches} with the watermark 2026-.* and none and is .* none and none now"):
        replace(there, watermarks={"numbers": at(5), "words": None}).fence(visits, table)
    with pytest.raises(FencedError, match=f"was at {batches} with number 1 .* with number 2"):
        replace(there, batch=1).fence(visits, table)
