"""What a keyed function may not do or be, and what it is told."""

from __future__ import annotations

import inspect
import json
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from streaming.base.errors import DeclarationError, FunctionError
from streaming.declare.keyed import Keyed
from streaming.keyed.count_windows import count_window
from streaming.keyed.fold import Key, as_json
from streaming.keyed.state_table import source_number
from tests.streaming.keyed.functions import added, count_rows, readings, rows, sorted_out
from tests.support.instants import at, ms
from tidemark.testing import Played, play


def divide(key: Key, row: Any) -> None:
    key.calls = (key.calls or 0) + 1
    key.seen = [*(key.seen or []), row.temperature]
    key.emit(value=1 / row.temperature)


def emit_unknown(key: Key, row: Any) -> None:
    key.emit(valeu=1.0)


def emit_elsewhere(key: Key, row: Any) -> None:
    key.emit("odd", value=1.0)


def emit_text(key: Key, row: Any) -> None:
    key.emit(value="1")


def set_past(key: Key, row: Any) -> None:
    key.timer("due", key.at - 1)


def set_now(key: Key, row: Any) -> None:
    key.timer("due", key.at)


def set_again(key: Key) -> None:
    key.timer("due", key.at)


def set_unknown(key: Key, row: Any) -> None:
    key.timer("deu", key.at)


def set_nowhere(key: Key, row: Any) -> None:
    key.timer("due", 2.5)  # type: ignore[arg-type]


def keep_text(key: Key, row: Any) -> None:
    key.calls = "many"


def keep_elsewhere(key: Key, row: Any) -> None:
    key.cals = 1


def end_the_process(key: Key, row: Any) -> None:
    sys.exit(3)


def raise_what_has_no_text(key: Key, row: Any) -> None:
    raise Unspeakable


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def keep_mixed(key: Key, row: Any) -> None:
    key.seen = (1.0,)


def nothing(key: Key) -> None:
    """Does nothing."""


def trying(on_row: Callable[[Any, Any], None], **changes: Any) -> Keyed:
    given: dict[str, Any] = {"timers": {"due": nothing}, "order": "event", **changes}
    return Keyed("tried", readings, ("id",), "calls bigint, seen array<double>", "value double", on_row, **given)


def played(keyed: Keyed, *batches: str) -> Played:
    return play(keyed, *map(rows, batches), end_of_input=True)


@pytest.mark.parametrize(
    ("on_row", "reason"),
    [
        (emit_unknown, r"emit has 'valeu', which output 'result' does not declare; its columns are: value"),
        (emit_elsewhere, r"there is no side output 'odd'; declared in sides= are: none"),
        (emit_text, r"emit to output 'result': '1' is a str and no number"),
        (set_past, r"timer 'due' is set to 1767225600999999, which is in the past"),
        (set_unknown, r"there is no timer 'deu'; declared in timers= are: due"),
        (set_nowhere, r"timer 'due' is set to 2\.5; set it to microseconds"),
        (keep_text, r"left in state field 'calls' of key \('a',\) what it cannot keep: 'many' is a str"),
        (keep_elsewhere, r"AttributeError: 'Key' object has no attribute 'cals'"),
        (keep_mixed, r"state field 'seen' of key \('a',\) what it cannot keep: \(1\.0,\) is a tuple and no list"),
    ],
)
def test_what_a_function_may_not_do_stops_the_step_with_the_reason(on_row: Callable[..., None], reason: str) -> None:
    with pytest.raises(FunctionError, match=reason):
        played(trying(on_row), "a@1=1")


def test_a_timer_that_sets_itself_to_its_own_time_is_refused() -> None:
    with pytest.raises(FunctionError, match=r"in timer 'due' of key \('a',\).*which is in the past"):
        played(trying(set_now, timers={"due": set_again}), "a@1=1")


def test_a_function_that_raises_is_told_with_row_key_and_state() -> None:
    with pytest.raises(FunctionError) as raised:
        played(trying(divide), "a@1=2, a@2=0")
    for part in ("'tried'", "on_row of key ('a',)", "ZeroDivisionError", '"temperature": 0.0', '"seen": [2.0, 0.0]'):
        assert part in str(raised.value)


def test_a_row_for_which_the_function_raises_goes_to_a_side_output_as_if_it_had_not_come() -> None:
    done = played(trying(divide, on_error="side"), "a@1=2, a@2=0", "a@3=4")
    assert [row[2] for row in done.results] == [0.5, 0.25]
    assert done.state == {("a",): {"calls": 2, "seen": [2.0, 4.0]}}
    ((key, when, error, timer, row, state),) = done.outputs["failed"]
    assert (key, when, error, timer) == ("a", at(2), "ZeroDivisionError: float division by zero.", None)
    assert json.loads(row) == {
        "id": "a",
        "timestamp": ms(at(2)),
        "temperature": 0.0,
        "event_time": ms(at(2)) * 1000,
    }
    assert json.loads(state) == {"calls": 1, "seen": [2.0]}


def test_rows_and_errors_of_whatever_values_can_be_told() -> None:
    told = as_json({"by_day": {date(2026, 1, 2): [{Decimal("0.10"): b"x"}]}, "text": "\udcff", "pairs": [((1, 2), 3)]})
    assert json.loads(told) == {"by_day": {"2026-01-02": [{"0.10": "b'x'"}]}, "text": "\udcff", "pairs": [[[1, 2], 3]]}
    done = played(trying(say_bytes, on_error="side"), "a@1=1")
    assert done.outputs["failed"][0][2] == r"ValueError: caf\udce9 é."


@pytest.mark.parametrize("on_row", [end_the_process, raise_what_has_no_text])
def test_whatever_a_function_raises_is_the_matter_of_its_row(on_row: Callable[..., None]) -> None:
    done = played(trying(on_row, on_error="side"), "a@1=1")
    assert done.outputs["failed"][0][2] in ("SystemExit: 3.", "Unspeakable: .")
    with pytest.raises(FunctionError, match="raised in on_row of key"):
        played(trying(on_row), "a@1=1")


def say_bytes(key: Key, row: Any) -> None:
    raise ValueError("caf\udce9 é")


def test_state_that_cannot_be_kept_is_found_at_its_row_where_that_is_sent_aside() -> None:
    done = played(trying(keep_text, on_error="side"), "a@1=1")
    assert "what it cannot keep: 'many'" in done.outputs["failed"][0][2]


def test_what_a_function_finds_in_its_state_does_not_depend_on_whether_it_was_stored() -> None:
    keyed = Keyed("typed", readings, ("id",), "total double, exact decimal(10, 2)", "was string", tell_types)
    whole = play(keyed, rows("a@1, a@2"), rows("a@3"), steps=())
    cut = play(keyed, rows("a@1"), rows("a@2, a@3"))
    assert (
        whole.results
        == cut.results
        == [("a", at(n), was) for n, was in ((1, "None None"), (2, "1.0 2.00"), (3, "1.0 2.00"))]
    )


def tell_types(key: Key, row: Any) -> None:
    key.emit(was=f"{key.total!r} {key.exact}")
    key.total, key.exact = 1, Decimal(2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"by": ("name",)}, "unknown column 'name'"),
        ({"by": ("temperature",)}, "of type double, whose equal values are not always the same key"),
        ({"by": ("id", "id")}, "repeats a key"),
        ({"state": "late boolean"}, "state field 'late' .* taken are: key, at, late"),
        ({"state": "id string"}, "state field 'id' .* has a name that is taken"),
        ({"state": "seen array<float>"}, "has a float, which is rounded"),
        ({"state": "seen interval"}, "has the type 'INTERVAL', which cannot be kept"),
        ({"result": "id string"}, "has the key 'id', which every output has by itself"),
        ({"sides": {"failed": "a string"}}, "side output 'failed' .* has a name that is taken"),
        ({"sides": {"Odd": "a string"}}, "'Odd' cannot name a side output"),
        ({"order": "time"}, "order='time' .* use one of: 'arrival', 'event'"),
        ({"on_error": "skip"}, "on_error='skip' .* use one of: 'pause', 'side'"),
        ({"version": 0}, "version=0 .* is no version"),
        ({"idle": "soon"}, "'soon' is not an interval"),
        ({"on_row": lambda key, row: None}, "workers cannot find by its name .* write it as a function of a module"),
        ({"on_row": "count_rows"}, "'count_rows', which cannot be called"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(changes: Mapping[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"by": ("id",), "state": "rows bigint", "result": "rows bigint", "on_row": count_rows}
    with pytest.raises(DeclarationError, match=reason):
        Keyed("tried", readings, **{**given, **changes})


def test_a_keyed_function_is_a_value() -> None:
    copied = pickle.loads(pickle.dumps(sorted_out))
    assert copied == sorted_out and hash(copied) == hash(sorted_out)
    assert replace(sorted_out, version=2) != sorted_out


def test_a_version_changes_the_fingerprint_and_a_description_does_not() -> None:
    assert replace(sorted_out, description="Sorted.", every="10 seconds").fingerprint == sorted_out.fingerprint
    assert replace(sorted_out, version=2).fingerprint["function"].endswith("functions.sort_out version 2")
    assert replace(sorted_out, idle="60 minutes").fingerprint == replace(sorted_out, idle="1 hour").fingerprint


def test_a_row_that_is_no_row_of_the_stream_is_refused_when_it_is_played() -> None:
    with pytest.raises(DeclarationError, match="a row has 'temp', which stream 'readings' does not have"):
        play(sorted_out, [{"id": "a", "temp": 1.0, "event_time": at(0)}])
    with pytest.raises(DeclarationError, match="a row has no 'event_time'"):
        play(sorted_out, [{"id": "a"}])


def test_a_changed_text_of_a_function_is_seen_within_a_piece_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = count_window("w", readings, size=2, value="temperature", function=added, result="sum double")
    before = source_number(keyed)
    assert before == source_number(pickle.loads(pickle.dumps(keyed)))
    monkeypatch.setattr(inspect, "getsource", lambda function: "def added(values): ...")
    assert source_number(keyed) != before
