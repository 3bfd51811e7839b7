"""Packages of modules that a test writes itself, found by Python for as long as the test lasts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

_PIPELINE = """
from streaming import Ascending, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg

{stream} = Stream("{stream}", Files("landing/{stream}"), Json("at timestamp"), "at", Ascending())
hourly = Windowed("{name}_hourly", {stream}, Tumbling("1 hour"), {{"rows": agg.count()}})
pipeline = Pipeline(name="{name}", streams=({stream},), operators=(hourly,))
"""


def pipeline_module(name: str, stream: str | None = None) -> str:
    """The source of a module that declares a pipeline; its stream has the same name unless another is given."""
    return _PIPELINE.format(name=name, stream=stream or name)


def write_modules(folder: Path, modules: Mapping[str, str]) -> None:
    """Write the modules, by name, into a folder, which is made where it is not there."""
    folder.mkdir(exist_ok=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(dedent(source))
    importlib.invalidate_caches()


@contextmanager
def importable(root: Path) -> Iterator[None]:
    """While the body runs, packages in `root` are found; afterwards Python has forgotten them."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root))
        yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(root)):
            del sys.modules[name]
    importlib.invalidate_caches()
