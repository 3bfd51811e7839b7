"""Windows with triggers and evictors, by the applications that they are for."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from streaming.base.errors import DeclarationError
from streaming.base.intervals import to_micros
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.keyed.fold import Fold
from streaming.keyed.library import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeTrigger,
    Evictor,
    NeverTrigger,
    PurgingTrigger,
    RepeatTrigger,
    TimeEvictor,
    ValueTrigger,
    marker_window,
    triggered_window,
)
from streaming.windows import SessionWindow, Sliding, Tumbling
from tests.streaming.keyed.functions import added, readings, rows
from tests.support.instants import at
from tidemark.testing import Played, play


def gathered(values: list[float]) -> Mapping[str, Any]:
    return {"values": values}


def triggered(**declared: Any) -> Keyed:
    return triggered_window(
        "triggered",
        readings,
        **{"by": ("id",), "value": "temperature", "function": added, "result": "sum double", **declared},
    )


def played(keyed: Keyed, drawn: str, **playing: Any) -> Played:
    """The function over batches that are separated by `|`."""
    return play(keyed, *(rows(batch) for batch in drawn.split("|")), **playing)


def content(done: Played, key: str = "a") -> list[tuple[Any, Any]]:
    """Time and value of what the only window of a key holds."""
    (window,) = done.state[(key,)]["windows"]
    return [(entry["at"], entry["value"]) for entry in window["content"]]


def sums(results: list[tuple[Any, ...]]) -> list[float]:
    return [row[-1] for row in results]


ONE_TO_SEVEN = "a@1=1, a@2=2, a@3=3, a@4=4 | a@5=5, a@6=6, a@7=7"


def test_t2_early_firing_at_most_once_a_second() -> None:
    early = triggered(window=Tumbling("30 seconds"), trigger=EventTimeTrigger(every="1 second"))
    done = played(early, "a@0.5=1 | a@1.2=1 | a@1.9=1 | a@2.9=1 | a@31=1")
    # (key, time of the firing, window start, window end, rows, sum)
    assert [(row[3], row[1], row[4]) for row in done.outputs["early"]] == [
        (at(30), at(0.5), 1),
        (at(30), at(1.2), 2),
        (at(30), at(2.9), 4),
        (at(60), at(31), 1),
    ]
    assert [(row[3], row[1], row[4]) for row in done.results] == [(at(30), at(30), 4)]


def test_t2_rows_that_keep_coming_behind_a_delay_do_not_put_an_early_result_off() -> None:
    patient = replace(readings, clock=BoundedOutOfOrderness("15 seconds"))
    early = replace(triggered(window=Tumbling("1 minute"), trigger=EventTimeTrigger(every="10 seconds")), of=patient)
    done = played(early, "|".join(f"a@{second}=1" for second in range(50)))
    # (time of the firing, rows): those that have come once the clock is there
    assert [(row[1], row[4]) for row in done.outputs["early"]] == [(at(9), 25), (at(29), 45)]


def test_t3_count_trigger_fires_at_n_and_keeps_its_content() -> None:
    done = played(triggered(trigger=CountTrigger(3)), ONE_TO_SEVEN, end_of_input=True)
    assert sums(done.results) == [6.0, 21.0]
    assert [value for _, value in content(done)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_t4_value_trigger_fires_with_the_special_value() -> None:
    done = played(triggered(trigger=ValueTrigger(is_end)), "a@1=1, a@2=-2 | a@3=5, a@4=-2")
    assert sums(done.results) == [-1.0, 2.0]


def is_end(value: float) -> bool:
    return value == -2


def row_starts(row: Any) -> bool:
    return bool(row.temperature == -1)


def row_ends(row: Any) -> bool:
    return bool(row.temperature == -2)


def test_t4_marker_windows_lose_nothing_that_lies_outside_of_them() -> None:
    marked = marker_window(
        "marked",
        readings,
        by=("id",),
        starts=row_starts,
        ends=row_ends,
        value="temperature",
        function=added,
        result="sum double",
    )
    done = played(marked, "a@1=9, a@2=-1, a@3=1 | a@4=2, a@5=-2, a@6=3, a@7=-1, a@8=4")
    assert done.results == [("a", at(5), at(2), at(5), 2, 3.0)]
    assert sums(done.outputs["unassigned"]) == [9.0, 3.0]
    assert done.state == {("a",): {"waiting": [4.0], "started_at": 1767225607000000}}
    begun_anew = played(marked, "a@1=-1, a@2=7, a@3=-1, a@4=8, a@5=-2, a@6=-2")
    assert (sums(begun_anew.results), sums(begun_anew.outputs["unassigned"])) == ([8.0], [7.0])


def test_t5_pattern_trigger_fires_on_a_repetition_within_five_seconds_inclusive() -> None:
    done = played(triggered(trigger=RepeatTrigger("5 seconds")), "a@0=1, a@1=2, a@5=1, a@10.001=1")
    assert [row[1] for row in done.results] == [at(5)]


def test_t6_purging_trigger_starts_anew_with_each_firing() -> None:
    done = played(triggered(trigger=PurgingTrigger(CountTrigger(3))), ONE_TO_SEVEN)
    assert sums(done.results) == [6.0, 15.0]
    assert [value for _, value in content(done)] == [7.0]


def test_t7_merging_sessions_merge_what_their_triggers_know() -> None:
    three = triggered(window=SessionWindow("10 seconds"), trigger=CountTrigger(3))
    patient = "z@-60=0 | a@0=1, a@15=1, a@8=1"
    done = played(three, patient)
    assert done.results == [("a", at(8), at(0), at(25), 3, 3.0)]
    assert len(done.state[("a",)]["windows"]) == 1
    assert played(three, patient, end_of_input=True).state == {}, "a declared trigger takes the place of the end"


def test_a_session_is_open_at_its_very_end_and_a_late_row_goes_aside() -> None:
    sessions = triggered(window=SessionWindow("10 seconds"))
    done = played(sessions, "a@0=1 | z@10=0 | a@10=2 | z@21=0 | a@20=4", end_of_input=True)
    assert [row[2:] for row in done.results if row[0] == "a"] == [(at(0), at(20), 2, 3.0)]
    assert done.outputs["too_late"] == [("a", at(20), 4.0)]


T8 = "a@0=1, a@3=2, a@5=3, a@8=10"


@pytest.mark.parametrize(
    ("evictor", "kept"),
    [
        (CountEvictor(2), [(5, 3.0), (8, 10.0)]),
        (TimeEvictor("5 seconds"), [(5, 3.0), (8, 10.0)]),
        (DeltaEvictor(5.0), [(8, 10.0)]),
    ],
)
def test_t8_evictors_before_the_function_and_after_it(evictor: Evictor, kept: list[Any]) -> None:
    listed: dict[str, Any] = {"function": gathered, "result": "values array<double>", "trigger": ValueTrigger(is_ten)}
    before = played(triggered(evictor=evictor, **listed), T8)
    assert sums(before.results) == [[value for _, value in kept]]
    after = played(triggered(evictor=replace(cast(Any, evictor), after=True), **listed), T8)
    assert sums(after.results) == [[1.0, 2.0, 3.0, 10.0]]
    for done in (before, after):
        assert [(instant_of(time), value) for time, value in content(done)] == [(at(t), v) for t, v in kept]


def test_t8_a_row_exactly_a_delta_away_goes() -> None:
    evicting = triggered(trigger=CountTrigger(3), evictor=DeltaEvictor(5.0))
    assert played(evicting, "a@1=5, a@2=5.5, a@3=10").results[0][2:] == (2, 15.5)


def is_ten(value: float) -> bool:
    return value == 10


def instant_of(micros: int) -> Any:
    return at((micros - 1767225600000000) / 1_000_000)


@pytest.mark.parametrize("window", [Tumbling("10 seconds"), SessionWindow("2 seconds")])
@pytest.mark.parametrize(
    ("trigger", "fired", "unfired"),
    [
        (PurgingTrigger(CountTrigger(3)), [6.0], [9.0]),
        (CountTrigger(3), [6.0], [15.0]),
        (CountTrigger(5), [15.0], []),
        (NeverTrigger(), [], [15.0]),
        (ValueTrigger(is_end), [], [15.0]),
    ],
)
def test_what_a_trigger_has_not_fired_goes_aside_when_its_window_ends(
    window: Any, trigger: Any, fired: list[float], unfired: list[float]
) -> None:
    five = "a@1=1, a@2=2 | a@3=3, a@4=4 | a@5=5"
    done = played(triggered(window=window, trigger=trigger), five, end_of_input=True)
    assert sums(done.results) == fired
    assert sums(done.outputs["unfired"]) == unfired
    assert not done.state


def test_a_window_that_an_older_release_left_open_closes_as_it_did() -> None:
    counted = triggered(window=Tumbling("10 seconds"), trigger=CountTrigger(3))
    start, end = to_micros(at(0)), to_micros(at(10))
    held = [{"at": to_micros(at(1)), "value": 1.0}]
    window = {"start": start, "end": end, "content": held, "notes": {"rows": 1}, "fired": None, "due": None}
    fold = Fold(counted)
    fold.advance(fold.begin(("a",), ([window],), {"close": end}), end)
    assert fold.outputs == []


def test_w19_a_global_window_fires_by_its_trigger_only_and_keeps_the_last_rows() -> None:
    hundred = ", ".join(f"a@{n}={n}" for n in range(1, 251))
    silent = played(triggered(evictor=CountEvictor(100)), hundred, end_of_input=True)
    assert silent.results == []
    assert [value for _, value in content(silent)] == [float(n) for n in range(151, 251)]
    each = played(triggered(evictor=TimeEvictor("5 seconds"), trigger=CountTrigger(1)), hundred)
    assert each.results[-1][2:] == (5, 246.0 + 247 + 248 + 249 + 250)


def test_w19_a_key_that_falls_silent_is_forgotten_and_its_content_told() -> None:
    expiring = triggered(trigger=CountTrigger(3), expire_after="5 seconds")
    done = played(expiring, "a@1=1, a@2=2 | b@30=1")
    assert done.outputs["expired"] == [("a", at(7), 2, 3.0)]
    assert set(done.state) == {("b",)}


def test_a_tumbling_window_takes_rows_behind_the_watermark_until_it_is_closed() -> None:
    done = played(triggered(window=Tumbling("10 seconds")), "a@1=1, a@9=1 | b@8=1 | a@3=1, a@16=1 | b@3=7 | a@30=1")
    windows = sorted((row[0], row[3], row[4]) for row in done.results)
    assert windows == [("a", at(10), 3), ("a", at(20), 1), ("b", at(10), 1)]
    assert done.outputs["too_late"] == [("b", at(3), 7.0)]


@pytest.mark.parametrize(
    "declared",
    [
        {"trigger": PurgingTrigger(CountTrigger(2))},
        {"window": Tumbling("7 seconds"), "trigger": EventTimeTrigger(every="2 seconds")},
        {"window": SessionWindow("3 seconds"), "trigger": CountTrigger(2), "evictor": CountEvictor(3)},
        {"window": SessionWindow("2 seconds"), "trigger": PurgingTrigger(EventTimeTrigger("1 second"))},
        {"trigger": RepeatTrigger("4 seconds"), "evictor": TimeEvictor("6 seconds"), "expire_after": "9 seconds"},
    ],
    ids=str,
)
def test_results_and_what_is_kept_do_not_depend_on_where_steps_end(declared: dict[str, Any]) -> None:
    keyed, chance = triggered(**declared), random.Random(19)
    for _ in range(20):
        times = [second + chance.choice((-6, -1, 0, 0, 0, 0.5)) for second in range(40)]
        drawn = [f"{chance.choice('ab')}@{max(time, 0)}={chance.randrange(3)}" for time in times]
        batches = [rows(", ".join(drawn[start : start + 4])) for start in range(0, 40, 4)]
        whole = play(keyed, *batches, steps=(), end_of_input=True)
        assert any(whole.outputs.values())
        cut = play(keyed, *batches, steps=chance.sample(range(10), 5), end_of_input=True)
        for to, results in whole.outputs.items():
            assert sorted(results, key=repr) == sorted(cut.outputs[to], key=repr)
        assert whole.state == cut.state


def test_a_triggered_window_is_a_value_that_workers_can_be_sent() -> None:
    keyed = triggered(window=SessionWindow("3 seconds"), trigger=ValueTrigger(is_ten), evictor=TimeEvictor("1 second"))
    sent = pickle.loads(pickle.dumps(keyed))
    assert sent == keyed and hash(sent) == hash(keyed)
    assert sent.fingerprint == keyed.fingerprint and "0x" not in str(keyed.fingerprint)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"window": Sliding("10 seconds", "5 seconds")}, r"Sliding\(.*has no triggers; use Tumbling"),
        ({"trigger": EventTimeTrigger()}, r"never ends.*use CountTrigger"),
        ({"window": Tumbling("5 seconds"), "expire_after": "1 hour"}, r"expire_after='1 hour'.* leave it out"),
        ({"value": "heat"}, r"'heat', which is no column of stream 'readings'.*: id, timestamp, temperature"),
        ({"trigger": CountEvictor(3)}, r"is CountEvictor.*write a trigger"),
    ],
)
def test_what_does_not_go_together_is_refused(declared: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        triggered(**declared)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: CountTrigger(0), r"CountTrigger\(0\)"),
        (lambda: CountEvictor(0), r"CountEvictor\(0\)"),
        (lambda: DeltaEvictor(0), r"DeltaEvictor\(0\)"),
        (lambda: EventTimeTrigger("soon"), "'soon' is not an interval"),
        (lambda: ValueTrigger(lambda value: value), "cannot find by its name"),
    ],
)
def test_a_trigger_or_evictor_that_cannot_be_is_refused(made: Any, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        made()
    assert NeverTrigger() == NeverTrigger()
