"""`tidemark bench` of a pipeline of several streams is of one of them."""

from __future__ import annotations

from docs.examples.model_scores import models, pipeline, scored
from platform_assets.cli.bench import with_first
from tests.platform_assets.conftest import Tidemark


def test_the_stream_to_replay_is_the_first_one_or_the_one_that_is_named() -> None:
    assert with_first(pipeline, None).stream == scored
    assert with_first(pipeline, models.name).streams == (models, scored)


def test_a_stream_that_the_pipeline_does_not_have_is_refused_with_those_it_has(tidemark: Tidemark) -> None:
    code, text = tidemark("bench flights --stream trains")
    assert code == 1 and "pipeline 'flights' has no stream 'trains'; it has flights." in text
