"""Days of a view's results, or values of another column, as partitions of Dagster that turn stale."""

# Not with postponed annotations: dagster reads those of resources, assets and ops when they are declared.
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import dagster as dg

from platform_assets.keys import current_keys, dagster_name, parts_key
from platform_assets.resources import LakeResource
from platform_assets.specs import asset_spec
from streaming import Changed, Lake, Pipeline, changed
from streaming.base import DAY, ReadError
from streaming.declare import Operator, find_pipeline

NO_VALUE = "__none__"
"""The partition of results that have no value in the column."""
_DATA_VERSION, _REVISION = "dagster/data_version", "revision"


class ResultParts:
    """Parts of an operator's current results, by the values of a column, as partitions of assets behind it.

    `spec` is an external asset with a partition for each value that results ever had, and `sensor` tells which of them
    have changed, since it looked last, by late, revised or retracted rows. An asset that depends on `spec`, with the
    same `partitions`, then shows just these as stale, and `AutomationCondition.eager()` builds just these again.

    `by` is a column of the results; left out, it is their day. `operator` is the first of the pipeline if left out.

    Raises:
        DeclarationError: there is no such pipeline or operator.
    """

    def __init__(self, pipeline: str | Pipeline, operator: str | Operator | None = None, *, by: str = DAY) -> None:
        self.pipeline = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
        self.operator = operator if isinstance(operator, Operator) else self.pipeline.operator(operator)
        self.by = by

    @cached_property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """One partition for each value, added when a result first has it."""
        return dg.DynamicPartitionsDefinition(name=self._name)

    @cached_property
    def spec(self) -> dg.AssetSpec:
        """The asset of which a partition changes with the results that have its value."""
        return asset_spec(
            self.pipeline,
            parts_key(self.operator, self.by),
            "current",
            f"Current results of {self.operator.name} by {self.by}: a partition changes with its results.",
            {"delta"},
            deps=current_keys(self.operator),
            why=f"{self.pipeline.name}/{self.operator.name}",
            explained_by=self.operator.explained_by,
            partitions_def=self.partitions,
        )

    @cached_property
    def sensor(self) -> dg.SensorDefinition:
        """Tells Dagster of the partitions whose results have changed; it starts no Spark, and launches nothing."""

        @dg.sensor(
            name=self._name,
            minimum_interval_seconds=30,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=f"Shows which parts of {self.operator.name} have other results than before.",
        )
        def tell(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult | dg.SkipReason:
            return self._told(lake.lake, context.instance, context.cursor)

        return tell

    @property
    def _name(self) -> str:
        return dagster_name("parts", self.operator.folder, self.operator.name, *([] if self.by == DAY else [self.by]))

    def _told(self, lake: Lake, instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorResult | dg.SkipReason:
        since = json.loads(cursor)[_REVISION] if cursor else -1
        known = {*instance.get_dynamic_partitions(self._name)}
        try:
            found, lost = changed(self.pipeline, self.operator, since=since, by=[self.by], lake=lake), set[str]()
        except ReadError as error:
            if since < 0:
                return dg.SkipReason(f"{error}")
            # Nobody can tell what stood then, so that every part may be another one now.
            found, lost = changed(self.pipeline, self.operator, by=[self.by], lake=lake), known
        counts = {**{key: {} for key in sorted(lost)}, **self._counted(found)}
        if not counts and found.revision == since:
            return dg.SkipReason(f"{self.operator.name} has no other results than at revision {since}")
        new = [key for key in counts if key not in known]
        return dg.SensorResult(
            cursor=json.dumps({_REVISION: found.revision}),
            dynamic_partitions_requests=[self.partitions.build_add_request(new)] if new else [],
            asset_events=[event for key, told in counts.items() for event in self._events(key, found.revision, told)],
        )

    def _counted(self, found: Changed) -> Mapping[str, Mapping[str, Any]]:
        """For each partition that has changed, how many of its results were added and taken back."""
        rows = found.parts.to_pylist()
        return {NO_VALUE if row[self.by] is None else str(row[self.by]): _but(row, self.by) for row in rows}

    def _events(
        self, key: str, revision: int, counts: Mapping[str, Any]
    ) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
        # Of an asset that Dagster does not make, staleness goes by observations, and automation by materializations.
        for event in (dg.AssetMaterialization, dg.AssetObservation):
            yield event(
                self.spec.key,
                partition=key,
                metadata={_REVISION: revision, **counts},
                tags={_DATA_VERSION: str(revision)},
            )


def _but(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in row.items() if each != name}
