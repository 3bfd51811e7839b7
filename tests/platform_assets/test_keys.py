"""Names in Dagster are unambiguous, whatever pipelines, views and reports are called."""

from __future__ import annotations

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_assets.keys import KINDS, Kind, dagster_name, report_name
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming import Json, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.clocks.clock import BoundedOutOfOrderness
from streaming.sources.files import Files

# Few letters and many underscores, which every declaration allows, so that collisions are looked for where they are.
PART = st.from_regex(r"[ab][ab_]{0,5}", fullmatch=True) | st.sampled_from(["drain", "stream", "late_data", "a_drain"])
OWNED = st.tuples(st.sampled_from(KINDS), st.lists(PART, min_size=1, max_size=2).map(tuple))


@given(OWNED, OWNED)
def test_different_owners_or_kinds_never_have_one_name(
    one: tuple[Kind, tuple[str, ...]], other: tuple[Kind, tuple[str, ...]]
) -> None:
    assert (dagster_name(one[0], *one[1]) == dagster_name(other[0], *other[1])) == (one == other)


@given(PART, PART, OWNED)
def test_a_reports_job_has_no_other_reports_name_and_none_of_a_pipeline(
    one: str, other: str, owned: tuple[Kind, tuple[str, ...]]
) -> None:
    assert (report_name(one) == report_name(other)) == (one == other)
    kind, owner = owned
    if kind != "publication":
        assert report_name(one) != dagster_name(kind, *owner)


@given(OWNED)
def test_a_name_is_one_that_dagster_takes(owned: tuple[Kind, tuple[str, ...]]) -> None:
    dg.OpDefinition(compute_fn=lambda: None, name=dagster_name(owned[0], *owned[1]))


def test_no_kind_ends_like_another() -> None:
    assert [(one, other) for one in KINDS for other in KINDS if one.endswith(f"_{other}")] == []


def test_the_names_that_people_type_are_plain() -> None:
    assert dagster_name("drain", "flights") == "flights_drain"
    assert dagster_name("correct", "flights", "by_origin") == "flights__by_origin_correct"
    assert report_name("on_time_performance") == "on_time_performance"


def _pipeline(name: str, *views: str) -> Pipeline:
    stream = Stream(name, Files(f"landing/{name}"), Json("at timestamp"), "at", BoundedOutOfOrderness("1 minute"))
    return Pipeline(stream, tuple(Windowed(view, stream, Tumbling("1 hour"), {"rows": agg.count()}) for view in views))


@pytest.mark.parametrize(
    "pipelines",
    [
        pytest.param((_pipeline("a", "hourly"), _pipeline("b", "hourly")), id="two views of one name"),
        pytest.param((_pipeline("a_b", "c"), _pipeline("a", "b_c")), id="an underscore on either side"),
        pytest.param((_pipeline("a__b", "c"), _pipeline("a", "b__c", "b_")), id="two underscores"),
        pytest.param((_pipeline("drain", "x"), _pipeline("drain_drain", "drain")), id="names of kinds"),
    ],
)
def test_pipelines_with_confusable_names_load_into_one_code_location(pipelines: tuple[Pipeline, ...]) -> None:
    merged = dg.Definitions.merge(
        *(pipeline_definitions(pipeline) for pipeline in pipelines), dg.Definitions(resources=default_resources())
    )
    dg.Definitions.validate_loadable(merged)
    repository = merged.get_repository_def()
    sets = [
        repository.assets_defs_by_key[key].partitions_def
        for key in repository.asset_graph.materializable_asset_keys
        if key.path[-1].endswith("_corrections")
    ]
    names = [definition.name for definition in sets if isinstance(definition, dg.DynamicPartitionsDefinition)]
    assert len(names) == len(set(names)) == sum(len(pipeline.views) for pipeline in pipelines)
