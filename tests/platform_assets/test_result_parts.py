"""Partitions of Dagster turn stale with the results that they are of, and no others do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.resources import LakeResource
from platform_assets.result_parts import NO_VALUE, ResultParts
from streaming import Lake, Pipeline, RowChoice, retract
from streaming.changes import publish
from tests.support.delivering import by_id, reading, readings
from tests.support.instants import NOW
from tests.support.runs import run
from tidemark.testing import correct

PIPELINE = Pipeline(readings, (by_id,))
ONE_DAY = 86_400.0


class Platform:
    """An asset behind `by_id`, with a partition for each of its parts, in an instance of Dagster of its own."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance, by: str) -> None:
        self.parts = ResultParts(PIPELINE, by_id, by=by)
        self.instance = instance
        self._resources = {"lake": LakeResource(home=lake.root)}
        self._cursor: Any = None
        self._revision: str | None = None

        @dg.asset(
            name=f"model_by{by}",
            deps=[self.parts.spec],
            partitions_def=self.parts.partitions,
            automation_condition=dg.AutomationCondition.eager(),
        )
        def model() -> None: ...

        self.model = model
        self.definitions = dg.Definitions(assets=[self.parts.spec, model], sensors=[self.parts.sensor])

    def look(self) -> str:
        """Let the sensor look once, and Dagster do what it says; why it skips, or empty."""
        context = dg.build_sensor_context(self.instance, cursor=self._revision, resources=self._resources)
        found = self.parts.sensor(context)
        if isinstance(found, dg.SkipReason):
            return found.skip_message or ""
        assert isinstance(found, dg.SensorResult)
        self._revision = found.cursor
        for request in found.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, [*request.partition_keys])
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        return ""

    def built(self) -> list[str]:
        """The partitions of the asset that Dagster asks for by now, which are built; it asks for no other then."""
        partitions = self._asked()
        for partition in partitions:
            assets: list[dg.AssetsDefinition | dg.AssetSpec] = [self.parts.spec, self.model]
            dg.materialize(assets, selection=[self.model], partition_key=partition, instance=self.instance)
        assert self._asked() == []
        return partitions

    def _asked(self) -> list[str]:
        asked = dg.evaluate_automation_conditions(self.definitions, self.instance, cursor=self._cursor)
        self._cursor = asked.cursor
        return sorted(filter(None, asked.get_requested_partitions(self.model.key)))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_partitions_whose_results_changed_are_built_again_and_no_others(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    """```
    nothing is published                  the sensor says so
    first day a b, second day a           both days, and both ids
    late, first day a@2                   the first day, and a
    taken back, all of b                  the first day, and b, of which nothing is left
    ```
    """
    by_day, of_ids = Platform(lake, instance, "_day"), Platform(lake, instance, "id")
    assert by_day.look().startswith("nothing of 'by_id' is published yet")
    assert (by_day.built(), of_ids.built()) == ([], [])

    on_time = [reading("a", 1, 5), reading("b", 3, 7), reading("a", ONE_DAY + 1, 1), reading("a", ONE_DAY + 40, 1)]
    run(spark, lake, PIPELINE, on_time)
    assert (by_day.look(), of_ids.look()) == ("", "")
    assert (by_day.built(), of_ids.built()) == (["2026-01-01", "2026-01-02"], ["a", "b"])
    assert by_day.look() == "by_id has no other results than at revision 0"
    assert by_day.built() == []

    run(spark, lake, PIPELINE, [reading("a", 2, 2)])
    assert correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)
    assert (by_day.look(), of_ids.look()) == ("", "")
    assert (by_day.built(), of_ids.built()) == (["2026-01-01"], ["a"])

    retract(spark, lake, PIPELINE, readings, RowChoice(where="id = 'b'"), "a test", "the test", lambda: NOW)
    assert correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)
    assert (by_day.look(), of_ids.look()) == ("", "")
    assert (by_day.built(), of_ids.built()) == (["2026-01-01"], ["b"])


def test_every_partition_changes_where_nobody_can_tell_what_stood_before(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    platform = Platform(lake, instance, "id")
    instance.add_dynamic_partitions(str(platform.parts.partitions.name), ["gone", NO_VALUE])
    assert platform.built() == []
    run(spark, lake, PIPELINE, [reading("a", 1, 5), reading("a", 40, 1)])
    # That of another lake, or of changes that were forgotten since.
    platform._revision = '{"revision": 7}'
    assert platform.look() == ""
    assert platform.built() == [NO_VALUE, "a", "gone"]
    assert platform._revision == '{"revision": 0}'
