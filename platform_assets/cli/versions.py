"""The versions that `tidemark --version` prints, found without importing what they are of, and without a JVM."""

from __future__ import annotations

import platform
import runpy
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_LIBRARIES = {
    "Spark": "pyspark",
    "Delta": "delta-spark",
    "delta-rs": "deltalake",
    "Dagster": "dagster",
    "Great Expectations": "great-expectations",
}
"""The name of each, and the distribution that brings it."""


def versions() -> Iterator[tuple[str, str]]:
    """The name and the version of Tidemark, and of each piece that a report of a fault should name."""
    yield "tidemark", _module("base/release.py")["RELEASE"]
    for name, distribution in _LIBRARIES.items():
        yield name, _version(distribution)
    yield "Python", platform.python_version()
    yield "Java", _module("spark/java.py")["java_version"]()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _module(path: str) -> dict[str, Any]:
    """The names of a module of `streaming` that needs the standard library only, run by itself.

    Importing it would import the whole package before, and with it Spark.
    """
    package = find_spec("streaming")
    assert package is not None and package.origin is not None
    return runpy.run_path(str(Path(package.origin).parent / path))
