"""Finds the declared pipelines: every module with a `pipeline`, in the packages that `TIDEMARK_PIPELINES` names."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from streaming.base import DeclarationError
from streaming.declare.pipeline import Pipeline
from streaming.lake import Settings


def declared_pipelines() -> dict[str, Pipeline]:
    """All pipelines by name.

    Raises:
        DeclarationError: a package cannot be imported, or two pipelines have one name.
    """
    found: dict[str, Pipeline] = {}
    for package in _packages():
        for module in pkgutil.iter_modules(_import(package).__path__):
            pipeline = getattr(_import(f"{package}.{module.name}"), "pipeline", None)
            if not isinstance(pipeline, Pipeline):
                continue
            if pipeline.name in found:
                raise DeclarationError(
                    f"two modules of {', '.join(_packages())} declare {pipeline.name!r}; rename one."
                )
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
            f"module with a variable `pipeline` in {' or '.join(_packages()).replace('.', '/')}."
        )
    return known[name]


def _packages() -> list[str]:
    return [name.strip() for name in Settings().pipelines.split(",") if name.strip()]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise DeclarationError(
            f"TIDEMARK_PIPELINES names {name!r}, which cannot be imported; name a package that Python finds."
        ) from error
