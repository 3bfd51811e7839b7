"""A selection is checked when it is declared, without Spark, and knows its columns."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from streaming import BoundedOutOfOrderness, Files, Json, RowFunction, Selected, Side, Stream
from streaming.base.errors import DeclarationError
from streaming.declare.delivery import Delivery
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres

orders = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string not null, at timestamp not null, items array<struct<sku: string>>, amount double"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
returns = replace(orders, name="returns", format=Json("id string, at timestamp, amount bigint, why string"))


def same(row: Any, opened: Any) -> Iterator[dict[str, Any]]:
    yield {"id": row.id}


@contextmanager
def opened(task: int) -> Iterator[int]:
    yield task


GIVEN: dict[str, Any] = {
    "name": "lines",
    "of": orders,
    "select": {"id": "id", "sku": "item.sku"},
    "explode": {"item": "items"},
    "sides": {"dear": Side(("id",), "amount > 100")},
}
LINES = Selected(**GIVEN)


def test_a_selection_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(LINES)) == LINES
    assert {LINES: 1}[replace(LINES)] == 1
    given = {"id": "id"}
    selected = replace(LINES, select=given, explode=None)
    given["more"] = "id"
    assert list(selected.types[""]) == ["id"]


def test_columns_say_what_they_are_computed_from() -> None:
    columns = {spec.name: spec for spec in LINES.columns_of()}
    assert list(columns) == ["id", "sku", "_at", "_batch", "_origin", "_element", "_written_at", "_day"]
    assert columns["sku"].of == (("orders", "items"),)
    assert (columns["id"].type, columns["id"].of) == ("string", (("orders", "id"),))
    assert [spec.name for spec in LINES.columns_of("dear")] == ["id", "_at", "_batch", "_origin", "_written_at", "_day"]
    assert LINES.columns_of("cheap") == ()
    both = Selected("both", (orders, returns), select={"twice": "amount * 2"})
    (twice, *_) = both.columns_of()
    assert twice.of == (("orders", "amount"), ("returns", "amount"))
    applied = Selected("applied", orders, ("id",), function=RowFunction(same, "id string comment 'Its id.'", opened))
    assert applied.columns_of()[0].meaning.endswith("same`. Its id.")


def test_what_changes_no_row_is_not_in_the_fingerprint() -> None:
    assert replace(LINES, description="x", every="1 minute").fingerprint == LINES.fingerprint
    for other in (
        replace(LINES, where="amount > 1"),
        replace(LINES, select=("id",)),
        replace(LINES, sides={"dear": Side(("id",), "amount > 101")}),
        Selected("lines", orders, function=RowFunction(same, "id string")),
    ):
        assert other.fingerprint != LINES.fingerprint
    first, second = (Selected("lines", orders, function=RowFunction(same, "id string", version=n)) for n in (1, 2))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "Lines"}, "'Lines' cannot name a selection"),
        ({"of": ()}, "is empty"),
        ({"of": (orders, "returns")}, "an entry of `of` of selection 'lines' is 'returns', a str"),
        ({"of": (orders, orders)}, "reads stream 'orders' twice"),
        ({"of": (orders, returns)}, "reads unknown column 'items'"),
        ({"of": (orders, returns), "explode": None, "select": None}, "select the columns that both have"),
        ({"select": ()}, "names no column"),
        ({"select": ("id", "ID")}, "has 'id' twice"),
        ({"select": {"_id": "id"}}, "belong to the event log"),
        ({"select": {"n": "count(*)"}}, "takes many rows together"),
        ({"select": ("price",)}, "reads unknown column 'price'"),
        ({"where": "amount"}, "where of selection 'lines' is 'amount', a number and no boolean"),
        ({"where": "amout > 1"}, "reads unknown column 'amout'"),
        ({"explode": {}}, "has 0 entries; write a dict of one name"),
        ({"explode": {"item": "items", "other": "items"}}, "has 2 entries"),
        ({"explode": {"id": "items"}}, "names its elements 'id', which is a column already"),
        ({"explode": {"item": "amount"}}, "a number and no array"),
        ({"sides": {"Dear": Side()}}, "'Dear' cannot name a side output"),
        ({"sides": {"rejected": Side()}}, "has a name that is taken"),
        ({"sides": {"dear": Side(where="n > 1")}}, "where of side output 'dear' of selection 'lines' reads unknown"),
        ({"function": same}, "RowFunction"),
        ({"function": RowFunction(same, "id string")}, "has both explode and a function"),
        ({"every": "now"}, "'now' is not an interval"),
    ],
)
def test_what_cannot_be_selected_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        Selected(**{**GIVEN, **changed})


def test_a_function_that_workers_cannot_find_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"apply of a row function is .*cannot find by its name"):
        RowFunction(lambda row, opened: [], "id string")
    with pytest.raises(DeclarationError, match="opens of a row function is 1, which cannot be called"):
        RowFunction(same, "id string", 1)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="cannot be kept"):
        RowFunction(same, "id interval")


def test_rows_of_an_output_can_be_delivered_with_where_they_are_from() -> None:
    own = Delivery("out", LINES, JsonLines("out"))
    assert (own.what, tuple(own.selected)) == ("rows", ("id", "sku"))
    dear = Delivery("out", LINES, Postgres("t", key=("id",)), output="dear", select={"id": "id", "b": "_batch"})
    assert dear.fingerprint == {"of": "lines", "what": "rows", "where": None, "output": "dear"}
    with pytest.raises(DeclarationError, match="'first' of delivery 'out' is nothing that a selection has; use 'rows'"):
        Delivery("out", LINES, JsonLines("out"), "first")
    with pytest.raises(DeclarationError, match=r"output='cheap' .* is no side output of 'lines', which has: dear"):
        Delivery("out", LINES, JsonLines("out"), output="cheap")
    with pytest.raises(DeclarationError, match=r"output='dear' .* is no side output of 'orders', which has: none"):
        Delivery("out", orders, JsonLines("out"), output="dear")
    with pytest.raises(DeclarationError, match="reads unknown column 'sku'"):
        Delivery("out", LINES, JsonLines("out"), output="dear", select=("sku",))


TYPES_THAT_LOSE = [
    ("bigint", "string", "fail for a value"),
    ("string", "date", "fail for a value"),
    ("boolean", "string", "fail for a value"),
    ("bigint", "double", "9007199254740993"),
    ("float", "decimal(10, 2)", "9007199254740993"),
    ("decimal(38, 0)", "decimal(10, 2)", "rounded away"),
    ("array<bigint>", "array<string>", "fail for a value"),
    ("struct<a: bigint>", "struct<a: double>", "may round"),
]
TYPES_THAT_KEEP = [
    *(("int", "bigint"), ("int", "double"), ("float", "double"), ("bigint", "decimal(10, 2)"), ("date", "timestamp")),
    *(("array<int>", "array<bigint>"), ("struct<a: bigint>", "struct<a: bigint>")),
]


def of_types(*types: str) -> tuple[Stream, ...]:
    return tuple(
        replace(orders, name=f"orders_{place}", format=Json(f"id string, at timestamp, amount {type_}"))
        for place, type_ in enumerate(types)
    )


@pytest.mark.parametrize(("one", "other", "lost"), TYPES_THAT_LOSE)
@pytest.mark.parametrize("select", [None, ("amount",), {"total": "`amount`"}])
def test_columns_of_several_streams_whose_values_could_be_lost_are_refused(
    one: str, other: str, lost: str, select: Any
) -> None:
    for types in ((one, other), (other, one), (one, one, other)):
        with pytest.raises(DeclarationError, match=r"is of type .* in 'orders_0', and of type .*cast") as refused:
            Selected("both", of_types(*types), select)
        assert lost in str(refused.value)
    with pytest.raises(DeclarationError, match="of side output 'aside'"):
        Selected("both", of_types(one, other), ("id",), sides={"aside": Side(select)})


@pytest.mark.parametrize(("one", "other"), TYPES_THAT_KEEP)
def test_columns_of_several_streams_of_which_one_type_holds_all_values_are_taken(one: str, other: str) -> None:
    assert Selected("both", of_types(one, other), ("amount",)).outputs
    assert Selected("both", of_types(other, one)).outputs


def test_a_cast_says_which_type_is_meant() -> None:
    both = Selected("both", of_types("bigint", "string"), {"amount": "cast(amount as string)"})
    assert both.types[""] == {"amount": "string"}
