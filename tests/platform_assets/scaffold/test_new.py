"""Pieces that are added to a project, and that run as they were written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from platform_assets.scaffold import To, add_delivery, add_view
from streaming.base.errors import DeclarationError

HEAD = "from tidemark import Pipeline, Stream, agg\n\n"


def added(tmp_path: Path, source: str, name: str = "by_day") -> str:
    file = tmp_path / "orders.py"
    file.write_text(source, encoding="utf-8")
    add_view(file, name)
    text = file.read_text(encoding="utf-8")
    ast.parse(text)
    return text


@pytest.mark.parametrize(
    ("views", "then"),
    [
        ("()", "(by_day,)"),
        ("(one,)", "(one, by_day)"),
        ("(one, two)", "(one, two, by_day)"),
        ("(\n    one,  # the first\n)", "(\n    one,  # the first\n    by_day,\n)"),
        ("(\n    one,\n    two\n)", "(\n    one,\n    two,\n    by_day,\n)"),
    ],
)
def test_a_view_is_added_behind_the_others_and_declared_before_the_pipeline(
    tmp_path: Path, views: str, then: str
) -> None:
    text = added(tmp_path, f'{HEAD}ö = "ä"  # kept\npipeline = Pipeline(stream=o.orders, views={views}, name="ß")\n')
    assert text.startswith("from tidemark import Pipeline, Stream, Tumbling, Windowed, agg\n\n")
    assert 'ö = "ä"  # kept\nby_day = Windowed(' in text and "    of=o.orders,\n" in text
    assert text.endswith(f'pipeline = Pipeline(stream=o.orders, views={then}, name="ß")\n')


def test_the_first_view_of_a_pipeline_of_streams_alone_is_given_to_it(tmp_path: Path) -> None:
    text = added(tmp_path, f'{HEAD}pipeline = Pipeline(stream=orders, name="shop")\n')
    assert text.endswith('pipeline = Pipeline(stream=orders, name="shop", views=(by_day,))\n')


@pytest.mark.parametrize(
    ("call", "then"),
    [
        ("views=()", "views=(), deliveries=(out,)"),
        ("views=(one,), deliveries=(two,)", "views=(one,), deliveries=(two, out)"),
        ("\n    views=(one,),\n", "\n    views=(one,), deliveries=(out,),\n"),
    ],
)
def test_a_delivery_is_added_to_those_there_are_or_as_the_first(tmp_path: Path, call: str, then: str) -> None:
    file = tmp_path / "orders.py"
    file.write_text(f"{HEAD}pipeline = Pipeline(stream=orders, {call})\n", encoding="utf-8")
    text = add_delivery(file, "out").read_text(encoding="utf-8")
    ast.parse(text)
    assert text.startswith("from tidemark import Delivery, JsonLines, Pipeline, Stream, agg\n\nout = Delivery(")
    assert text.endswith(f"pipeline = Pipeline(stream=orders, {then})\n")


@pytest.mark.parametrize(
    ("to", "target", "declared"),
    [
        ("kafka", "KafkaTopic", 'KafkaTopic("localhost:9092", "out")'),
        ("delta", "DeltaTable", 'DeltaTable("exports/out")'),
    ],
)
def test_a_delivery_may_begin_with_another_target(to: To, target: str, declared: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(f"{HEAD}pipeline = Pipeline(stream=orders, views=())\n", encoding="utf-8")
    text = add_delivery(file, "out", to).read_text(encoding="utf-8")
    ast.parse(text)
    assert text.startswith(f"from tidemark import Delivery, {target}, Pipeline, Stream, agg\n")
    assert f"    to={declared},\n" in text


def test_names_that_are_imported_in_another_way_are_not_touched(tmp_path: Path) -> None:
    rest = "pipeline = Pipeline(stream=orders, views=(one,))\n"
    mine = "from tidemark import (\n    Pipeline,  # mine\n)\n"
    behind = added(tmp_path, f"{mine}\n{rest}")
    assert mine in behind and "\nfrom tidemark import Tumbling, Windowed, agg" in behind
    nothing = added(tmp_path, f"from streaming import Tumbling, Windowed, agg, Pipeline\n\n{rest}")
    assert nothing.startswith("from streaming import Tumbling, Windowed, agg, Pipeline\n\nby_day = ")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("pipeline = make()\n", "does not declare its pipeline as .* Write it there yourself:\n\nby_day = Windowed"),
        ("pipeline = Pipeline(stream=orders, views=VIEWS)\n", "does not declare its pipeline as"),
        ("by_day = 1\npipeline = Pipeline(stream=orders, views=())\n", "has a 'by_day' already; choose another name"),
    ],
)
def test_a_module_that_cannot_be_added_to_stays_as_it_is(tmp_path: Path, source: str, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        added(tmp_path, source)
    assert (tmp_path / "orders.py").read_text() == source
