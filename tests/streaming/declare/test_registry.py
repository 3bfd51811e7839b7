"""One broken module beside good ones is named, with file, line and reason, and leaves the others alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming import broken_modules, declared_pipelines, find_pipeline
from streaming.base import BrokenModule, DeclarationError
from streaming.declare import written_pipelines
from tests.support.packages import importable, pipeline_module, write_modules

Declare = Callable[..., Path]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Writes the modules of the package `shop`, the only one that is declared; returns its folder."""
    monkeypatch.setenv("TIDEMARK_PIPELINES", "shop")

    def written(**modules: str) -> Path:
        write_modules(tmp_path / "shop", {"__init__": "", **modules})
        return tmp_path / "shop"

    with importable(tmp_path):
        yield written


BROKEN = {
    "syntax error": ("x = 1\n\ndef f(:\n", 3, "SyntaxError: invalid syntax"),
    "no Python source": ("x = 1\0", None, "SyntaxError: source code string cannot contain null bytes"),
    "it raises": ("x = 1\ny = x / 0\n", 2, "ZeroDivisionError: division by zero"),
    "a function of its own raises": (
        "def f():\n    return 1 / 0\n\nx = f()\n",
        2,
        "ZeroDivisionError: division by zero",
    ),
    "missing import": ("\nimport nothing_like_this\n", 2, "ModuleNotFoundError: No module named 'nothing_like_this'"),
    "it ends the process": ("raise SystemExit(3)\n", 1, "SystemExit: 3"),
    "a message of two lines": ("raise ValueError('one\\ntwo')\n", 1, "ValueError: one two"),
    "no message": ("assert False\n", 1, "AssertionError: it says nothing more"),
    "a library raises": ("import json\njson.loads('{')\n", 2, "JSONDecodeError: Expecting property name enclosed in"),
    "a declaration is refused": ("from streaming import Tumbling\nTumbling(\n'soon')\n", 2, "BadInterval: 'soon'"),
    "a name that the lake keeps": (
        pipeline_module("quality", "orders"),
        6,
        "BadName: 'quality' cannot name a",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_module_that_cannot_be_imported_is_named_and_the_others_work(declare: Declare, case: str) -> None:
    source, line, reason = BROKEN[case]
    folder = declare(bad=source, good=pipeline_module("good"), helper="x = 1")

    assert list(declared_pipelines()) == ["good"]
    assert find_pipeline("good").name == "good"
    (broken,) = broken_modules()
    assert (broken.module, broken.file, broken.line) == ("shop.bad", str(folder / "bad.py"), line)
    assert broken.reason.startswith(reason)
    assert "\n" not in str(broken)


def test_an_error_in_a_helper_of_the_user_names_the_helper(declare: Declare) -> None:
    folder = declare(bad="from shop.units import METRE", good=pipeline_module("good"), units="CENT = 1\nMETRE = CENTS")
    (bad, units) = broken_modules()
    assert (bad.module, bad.file, bad.line) == ("shop.bad", str(folder / "units.py"), 2)
    assert (units.module, units.file, units.line) == ("shop.units", str(folder / "units.py"), 2)


def test_a_pipeline_that_is_not_found_may_be_in_a_broken_module_so_the_text_names_it(declare: Declare) -> None:
    folder = declare(bad="1 / 0", good=pipeline_module("good"), worse="x = ")
    with pytest.raises(DeclarationError, match="there is no pipeline 'bad'; declared are: good") as refused:
        find_pipeline("bad")
    assert str(refused.value).splitlines()[1:] == [
        f"module shop.bad is broken: {folder / 'bad.py'}:1: ZeroDivisionError: division by zero",
        f"module shop.worse is broken: {folder / 'worse.py'}:1: SyntaxError: invalid syntax",
    ]


def test_two_pipelines_of_one_name_stay_out_and_the_others_work(declare: Declare) -> None:
    folder = declare(one=pipeline_module("till", "a"), two=pipeline_module("till", "b"), good=pipeline_module("good"))
    assert list(declared_pipelines()) == ["good"]
    assert broken_modules() == tuple(
        BrokenModule(
            f"shop.{module}",
            str(folder / f"{module}.py"),
            None,
            f"it and module shop.{other} both declare pipeline 'till'; rename one",
        )
        for module, other in (("one", "two"), ("two", "one"))
    )


def test_two_pipelines_that_ingest_one_stream_stay_out_and_the_others_work(declare: Declare) -> None:
    declare(one=pipeline_module("till", "sold"), two=pipeline_module("tax", "sold"), good=pipeline_module("good"))
    assert list(declared_pipelines()) == ["good"]
    assert [(broken.module, broken.reason) for broken in broken_modules()] == [
        (
            f"shop.{module}",
            f"it and module shop.{other} both ingest stream 'sold', in pipelines {names}, but a log has one writer; "
            "move what reads the stream into one pipeline",
        )
        for module, other, names in (("one", "two", "'till' and 'tax'"), ("two", "one", "'tax' and 'till'"))
    ]


def test_a_module_that_hands_on_the_pipeline_of_another_does_not_declare_it_again(declare: Declare) -> None:
    declare(good=pipeline_module("good"), names="from shop.good import pipeline")
    assert (list(declared_pipelines()), broken_modules()) == (["good"], ())


def test_a_package_that_raises_leaves_the_pipelines_of_another_alone(
    declare: Declare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(good=pipeline_module("good"))
    write_modules(tmp_path / "branch", {"__init__": "\n1 / 0"})
    monkeypatch.setenv("TIDEMARK_PIPELINES", "branch,shop")
    assert list(declared_pipelines()) == ["good"]
    assert [(broken.module, broken.line) for broken in broken_modules()] == [("branch", 2)]


@pytest.mark.parametrize("name", ["shopp", "shop.nothing", "shop.good"])
def test_what_is_no_package_is_refused(declare: Declare, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(good=pipeline_module("good"))
    monkeypatch.setenv("TIDEMARK_PIPELINES", f"shop,{name}")
    with pytest.raises(DeclarationError, match=f"TIDEMARK_PIPELINES names '{name}', which is no package"):
        declared_pipelines()


def test_the_name_of_a_stream_leads_to_the_pipeline_that_ingests_it(declare: Declare) -> None:
    declare(house=pipeline_module("house", "rooms"))
    with pytest.raises(DeclarationError, match=r"'rooms' is a stream, not a pipeline; .* ingests it is 'house'"):
        find_pipeline("rooms")


STREAMS_ALONE = """
from streaming import Ascending, Files, Json, Pipeline, Stream

visits = Stream("visits", Files("landing/visits"), Json("at timestamp, city string"), "at", Ascending())
pipeline = Pipeline(visits)
"""


def test_a_pipeline_of_streams_alone_runs_as_soon_as_there_is_a_file_of_a_view(declare: Declare) -> None:
    folder = declare(visits=STREAMS_ALONE)
    assert list(declared_pipelines()) == [] and list(written_pipelines()) == ["visits"]
    (broken,) = broken_modules()
    assert (broken.module, broken.file) == ("shop.visits", str(folder / "visits.py"))
    with pytest.raises(DeclarationError, match="`tidemark new view NAME --sql` does; or give the pipeline an operator"):
        find_pipeline("visits")
    views = folder.parent / "views"
    views.mkdir()
    (views / "by_city.sql").write_text("-- key: city\nselect city, count(*) as visits from visits group by city\n")
    assert broken_modules() == ()
    assert [operator.name for operator in find_pipeline("visits").operators] == ["by_city"]
