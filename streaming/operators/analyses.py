"""Answers of Spark's analysis about a pipeline's declarations, kept for who explains them without Spark.

Each answer is kept under a digest of what it follows from, so that one of another declaration or release is none.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from streaming.base import RELEASE
from streaming.declare import Operator, Pipeline, Stream
from streaming.lake import Lake
from streaming.log import Place, places_of_ingest
from streaming.operators.runtime import counts_of, runtime_of
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAMS, _OPERATORS = "streams", "operators"


def analyse(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> None:
    """Write down what Spark tells of a pipeline's streams and operators, where it is not there yet."""
    before = _read(lake, pipeline)
    now: dict[str, dict[str, Any]] = {_STREAMS: {}, _OPERATORS: {}}
    for operator in pipeline.operators:
        analysis = partial(runtime_of(operator, lake).analysis, spark)
        now[_OPERATORS][operator.name] = _kept(before[_OPERATORS], operator.name, _key(operator), analysis)
    for stream in (each.revisions for each in pipeline.streams):
        places = partial(_places, spark, lake, pipeline, stream)
        now[_STREAMS][stream.name] = _kept(before[_STREAMS], stream.name, _key_of_stream(pipeline, stream), places)
    if now != before:
        storage.replace_bytes(_uri(lake, pipeline), json.dumps(now).encode(), uuid.uuid4().hex)


def analysis_of(lake: Lake, pipeline: Pipeline, operator: Operator) -> Mapping[str, Any] | None:
    """The facts that `OperatorRuntime.analysis` gives; None where nobody has written it down."""
    kept = _read(lake, pipeline)[_OPERATORS].get(operator.name)
    return kept["told"] if kept is not None and kept["key"] == _key(operator) else None


def places_in(lake: Lake, pipeline: Pipeline, stream: Stream) -> tuple[Place, ...] | None:
    """The places of the parts of a stream's ingest; None where nobody has written them down."""
    stream = stream.revisions
    kept = _read(lake, pipeline)[_STREAMS].get(stream.name)
    if kept is None or kept["key"] != _key_of_stream(pipeline, stream):
        return None
    return tuple(Place(**each) for each in kept["told"])


def _places(spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream) -> list[dict[str, Any]]:
    counts = counts_of([runtime_of(operator, lake) for operator in pipeline.operators_of(stream)], stream)
    return [asdict(part) for part in places_of_ingest(spark, stream, counts).parts]


def _kept(before: Mapping[str, Any], name: str, key: str, find: Callable[[], Any]) -> dict[str, Any]:
    """The answer of this key; `find` is asked for it where another one is kept, or none."""
    kept: dict[str, Any] = before.get(name, {})
    return kept if kept.get("key") == key else {"key": key, "told": json.loads(json.dumps(find()))}


def _key(operator: Operator) -> str:
    return _digest(
        type(operator).__name__, dict(operator.whole_fingerprint), [stream.types for stream in operator.reads]
    )


def _key_of_stream(pipeline: Pipeline, stream: Stream) -> str:
    return _digest(repr(stream), [_key(operator) for operator in pipeline.operators_of(stream)])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([RELEASE, version("pyspark"), *parts]).encode()).hexdigest()


def _read(lake: Lake, pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    document = storage.read_json(_uri(lake, pipeline)) or {}
    return {name: document[name] if isinstance(document.get(name), dict) else {} for name in (_STREAMS, _OPERATORS)}


def _uri(lake: Lake, pipeline: Pipeline) -> str:
    return lake.path(pipeline.name, "analyses.json")
