"""What a refusal says, word for word where people will act on it: the value, what is valid, what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from streaming.base.errors import DeclarationError
from streaming.base.intervals import interval
from streaming.base.names import check_column_name, check_name
from streaming.base.sql import check_names, columns_of, names_in
from streaming.clocks.clock import BoundedOutOfOrderness
from streaming.declare.late_policy import check_policy

REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "interval": (
        lambda: interval("1 month"),
        "'1 month' is not an interval; write a whole number and a unit, such as '15 minutes'. "
        "Units: millisecond, second, minute, hour, day, week (or their plurals).",
    ),
    "name": (
        lambda: check_name("view", "By-Hour"),
        "'By-Hour' cannot name a view; use lower-case letters, digits and '_', beginning with a letter.",
    ),
    "column name": (
        lambda: check_column_name("_x"),
        "column '_x' is not allowed: names beginning with '_' belong to the event log. Rename it.",
    ),
    "column name with a dot": (
        lambda: check_column_name("user.id"),
        "column 'user.id' is not allowed: Spark reads what stands behind a dot as a field of a struct. Rename it, such "
        "as 'user_id'.",
    ),
    "empty column name": (
        lambda: check_column_name(""),
        "column '' is not allowed: names beginning with '_' belong to the event log. Rename it.",
    ),
    "unknown columns": (
        lambda: check_names("where of view 'v'", "b + c > a", ("a", "d")),
        "where of view 'v' reads unknown column 'b', 'c' in 'b + c > a'. Columns there are: a, d. Correct the name, or "
        "declare the column.",
    ),
    "repeated columns": (
        lambda: columns_of("b int, a int, B int, A string"),
        "the schema 'b int, a int, B int, A string' repeats a, b; write each column once as '<name> <type>', separated "
        "by commas.",
    ),
    "no columns": (
        lambda: columns_of(""),
        "the schema '' declares no column; write each column once as '<name> <type>', separated by commas.",
    ),
    "schema that the parser cannot read": (
        lambda: columns_of("a b c"),
        "cannot read the schema 'a b c': Expecting ). Write it as Spark SQL.",
    ),
    "expression that the parser cannot read": (
        lambda: names_in("(a"),
        "cannot read the expression '(a': Expecting ). Write it as Spark SQL.",
    ),
    "expression without a word from the parser": (
        lambda: names_in("'open"),
        'cannot read the expression "\'open": not SQL. Write it as Spark SQL.',
    ),
    "update without lateness": (
        lambda: check_policy("v", "update", None, None),
        "view 'v' has late='update' and allowed_lateness=None; late='update' needs an allowed lateness, such as "
        "'5 seconds', and the other policies have none.",
    ),
    "lateness without update": (
        lambda: check_policy("v", "drop", "1 hour", None),
        "view 'v' has late='drop' and allowed_lateness='1 hour'; late='update' needs an allowed lateness, such as "
        "'5 seconds', and the other policies have none.",
    ),
}


@pytest.mark.parametrize(("refused", "text"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_says_what_is_wrong_and_what_to_do(refused: Callable[[], object], text: str) -> None:
    with pytest.raises(DeclarationError) as error:
        refused()
    assert str(error.value) == text


@pytest.mark.parametrize("late", ["correct", "drop"])
@pytest.mark.parametrize("early", [None, "each batch", "5 minutes"])
def test_a_policy_without_lateness_goes_with_every_way_of_showing_open_windows(late: str, early: str | None) -> None:
    check_policy("v", late, None, early)


def test_an_interval_may_be_written_in_any_case_and_with_any_space() -> None:
    assert interval("\t1 HOUR\n30minutes ") == timedelta(minutes=90)
    assert interval("1 week 1 day 1 hour 1 minute 1 second 1 millisecond") == timedelta(
        weeks=1, days=1, hours=1, minutes=1, seconds=1, milliseconds=1
    )


@pytest.mark.parametrize("field", ["delay", "max_ahead"])
def test_a_clocks_lengths_are_intervals(field: str) -> None:
    with pytest.raises(DeclarationError, match="'soon' is not an interval"):
        replace(BoundedOutOfOrderness("1 second"), **{field: "soon"})  # type: ignore[arg-type]
