"""Finds the declared pipelines: every module of `streaming.pipelines` that has a `pipeline`."""

from __future__ import annotations

import importlib
import pkgutil

from streaming import pipelines
from streaming.errors import DeclarationError
from streaming.pipeline import Pipeline


def declared_pipelines() -> dict[str, Pipeline]:
    """All pipelines by name."""
    found = {}
    for module in pkgutil.iter_modules(pipelines.__path__):
        pipeline = getattr(importlib.import_module(f"{pipelines.__name__}.{module.name}"), "pipeline", None)
        if isinstance(pipeline, Pipeline):
            found[pipeline.name] = pipeline
    return found


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        DeclarationError: there is none; the text lists those there are.
    """
    known = declared_pipelines()
    if name not in known:
        raise DeclarationError(
            f"there is no pipeline {name!r}; declared are: {', '.join(sorted(known)) or 'none'}. A pipeline is a "
            "module of streaming/pipelines with a variable `pipeline`."
        )
    return known[name]
