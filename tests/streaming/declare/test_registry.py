"""A module that cannot be imported is named, with file and line, and the pipelines of the others are there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from streaming.base.errors import DeclarationError
from streaming.declare.registry import broken_modules, declared_pipelines, find_pipeline

GOOD = """
from streaming import Ascending, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg

stream = Stream("{stream}", Files("landing/x"), Json("at timestamp"), "at", Ascending())
view = Windowed("{stream}_by_hour", stream, Tumbling("1 hour"), {{"rows": agg.count()}})
pipeline = Pipeline(name="{name}", streams=(stream,), operators=(view,))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new package of pipelines, the only one that is declared."""
    folder = tmp_path / f"declared_{uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", folder.name)
    yield folder
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_like_this", ":1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("x = 1\ny = 1 / 0", ":2: ZeroDivisionError: division by zero"),
        ("def f(:", ":1: SyntaxError:"),
        ("raise SystemExit(3)", ":1: SystemExit: 3"),
        ("from streaming import Tumbling\n\nTumbling('soon')", ":3: DeclarationError: 'soon' is not an interval"),
    ],
)
def test_a_broken_module_is_named_with_file_and_line_and_the_others_work(
    package: Path, source: str, reason: str
) -> None:
    (package / "good.py").write_text(GOOD.format(stream="good", name="good"))
    (package / "bad.py").write_text(source)

    assert list(declared_pipelines()) == ["good"]
    (broken,) = broken_modules()
    assert broken.name == f"{package.name}.bad"
    assert broken.reason.startswith(f"{package / 'bad.py'}{reason}")
    with pytest.raises(DeclarationError, match="there is no pipeline 'bad'; declared are: good") as refused:
        find_pipeline("bad")
    assert str(broken) in str(refused.value)


def test_two_pipelines_of_one_name_are_refused_and_the_others_work(package: Path) -> None:
    for module, stream, name in (("one", "a", "shop"), ("two", "b", "shop"), ("three", "c", "other")):
        (package / f"{module}.py").write_text(GOOD.format(stream=stream, name=name))
    assert list(declared_pipelines()) == ["other"]
    assert sorted(module.name for module in broken_modules()) == [f"{package.name}.one", f"{package.name}.two"]
    assert all("declares pipeline 'shop', as" in module.reason for module in broken_modules())


def test_two_pipelines_that_ingest_one_stream_are_refused_and_the_others_work(package: Path) -> None:
    for module, stream, name in (("one", "a", "first"), ("two", "a", "second"), ("three", "c", "other")):
        (package / f"{module}.py").write_text(GOOD.format(stream=stream, name=name))
    assert list(declared_pipelines()) == ["other"]
    assert [module.reason.split(";")[0] for module in broken_modules()] == [
        f"its pipeline 'first' ingests stream 'a', as 'second' of {package.name}.two does",
        f"its pipeline 'second' ingests stream 'a', as 'first' of {package.name}.one does",
    ]


def test_a_package_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", "nothing.like.this")
    with pytest.raises(DeclarationError, match=r"TIDEMARK_PIPELINES names 'nothing.like.this'"):
        declared_pipelines()
