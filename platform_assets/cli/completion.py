"""Completions of the names that commands take; declarations are imported, Spark is not started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec

import typer

from streaming.declare import Pipeline, declared_pipelines
from streaming.lake import Settings

Asked = ParamSpec("Asked")


def silent(propose: Callable[Asked, Iterable[str]]) -> Callable[Asked, list[str]]:
    """Nothing is proposed where the declarations or settings are broken: a shell has no place for an error."""

    @wraps(propose)
    def proposed(*args: Asked.args, **kwargs: Asked.kwargs) -> list[str]:
        try:
            return list(propose(*args, **kwargs))
        # Whatever user code raises.
        except Exception:
            return []

    return proposed


@silent
def pipeline_names(incomplete: str) -> Iterable[str]:
    """The declared pipelines."""
    return beginning(incomplete, declared_pipelines())


@silent
def operator_names(incomplete: str) -> Iterable[str]:
    """The views of all pipelines."""
    names = (operator.name for pipeline in declared_pipelines().values() for operator in pipeline.operators)
    return beginning(incomplete, names)


@silent
def explained_names(incomplete: str) -> Iterable[str]:
    """The views and streams of all pipelines."""
    pipelines = declared_pipelines().values()
    views = [operator.name for pipeline in pipelines for operator in pipeline.operators]
    streams = [stream.name for pipeline in pipelines for stream in pipeline.streams]
    return beginning(incomplete, dict.fromkeys([*views, *streams]))


@silent
def why_names(incomplete: str) -> Iterable[str]:
    """The views of all pipelines, and the reports."""
    from platform_assets.reports.registry import declared_reports

    views = (operator.name for pipeline in declared_pipelines().values() for operator in pipeline.operators)
    return beginning(incomplete, dict.fromkeys([*views, *declared_reports()]))


@silent
def view_names(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The views of the pipeline that was typed; of all, where the shell does not tell what was."""
    typed = ctx.params.get("pipeline_name")
    among = declared_pipelines().values() if typed is None else [_typed_pipeline(ctx)]
    return beginning(incomplete, (operator.name for pipeline in among for operator in pipeline.operators))


@silent
def receiver_names(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The receivers of the pipeline that was typed."""
    return beginning(incomplete, (receiver.name for receiver in _typed_pipeline(ctx).receivers))


@silent
def readable_names(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The names that `tidemark show` takes for the pipeline and the view that were typed."""
    from platform_assets.cli.tables import readable

    pipeline = _typed_pipeline(ctx)
    return beginning(incomplete, readable(Settings().lake, pipeline, pipeline.operator(ctx.params.get("view"))))


def _typed_pipeline(ctx: typer.Context) -> Pipeline:
    return declared_pipelines()[ctx.params["pipeline_name"]]


def beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Those of the names that begin with what was typed."""
    return [name for name in names if name.startswith(incomplete)]
