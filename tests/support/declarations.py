"""Every declaration of the demo and the examples, and one of each kind that none of them uses."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

import docs.examples
import platform_assets.demo.pipelines
from docs.examples import late_counts
from streaming import Files, SessionWindow, Table, agg
from streaming.clocks import Ascending, BoundedOutOfOrderness, Punctuated
from streaming.declare import Delivery, Failure, Limits
from streaming.declare.restarts import ExponentialBackoff, FailureRate, FixedDelay, NoRestart
from streaming.sinks import Console, CsvFiles, DeltaTable, IcebergTable, JsonLines, ParquetFiles, Postgres, Rest, Socket
from streaming.windows import Custom, LocalDays, Sliding, Tumbling
from tests.support.instants import T0

AGGREGATES = (
    *(agg.count(), agg.count("v > 1"), agg.count_distinct("v"), agg.mean("v"), agg.sum("v"), agg.minimum("v")),
    *(agg.maximum("v"), agg.share("v > 1"), agg.stddev("v"), agg.percentile("v", 0.9), agg.median("v"), agg.mode("v")),
    *(agg.first("v"), agg.last("v"), agg.min_by("k", "v"), agg.max_by("k", "v"), agg.collect("v")),
    *(agg.first_arrived("v"), agg.last_arrived("v")),
)
OF_EACH_KIND = (
    *(Ascending(idle_after="2 minutes"), BoundedOutOfOrderness("1 minute"), Punctuated("v > 1", max_behind="1 day")),
    *(Tumbling("1 hour", "5 minutes"), Sliding("1 hour", "5 minutes"), SessionWindow("5 minutes"), LocalDays("UTC")),
    *(SessionWindow(seconds_of="v"), Custom("array(struct(at, at + interval 1 day))", within="1 day")),
    *(NoRestart(), FixedDelay(), ExponentialBackoff(), FailureRate(), Limits(rejected_share=None)),
    *(JsonLines("x"), CsvFiles("x", by="hour"), ParquetFiles("x"), Postgres("t", key=("k",)), Rest("http://x/y")),
    *(DeltaTable("x", key=("k",)), DeltaTable("x", mode="append"), IcebergTable("x.y", {"uri": "sqlite:///z"})),
    *(Console(), Socket("localhost", 9191), Delivery("out", late_counts.readings, JsonLines("y"))),
    *(Table("s3://x/y", start_version=3), Table(late_counts.readings), Table(late_counts.count_by_sensor)),
    *(Files("landing/x", files_per_batch=2), Failure(T0, timedelta(seconds=1), "out of memory")),
)


def every_declaration() -> list[Any]:
    """Each once, those that others are made of included."""
    roots = [*AGGREGATES, *OF_EACH_KIND]
    for package in (docs.examples, platform_assets.demo.pipelines):
        for module in pkgutil.iter_modules(package.__path__):
            roots += vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
    parts = {repr(part): part for root in roots for part in _parts(root)}
    return list(parts.values())


def _parts(value: Any) -> Iterator[Any]:
    """The declaration `value` and those it is made of; nothing where it is none."""
    if isinstance(value, tuple):
        for entry in value:
            yield from _parts(entry)
    elif isinstance(value, Mapping):
        yield from _parts(tuple(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        yield value
        yield from _parts(tuple(getattr(value, field.name) for field in fields(value)))
