"""`tidemark why`: the rows, rules and corrections behind one number, and whether they still give it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from platform_assets.cli.completion import why_names
from platform_assets.cli.context import AsJson, AsOf, console, current_lake, find_operator, read_lake, spark_session
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step
from platform_assets.cli.why_documents import WhyDocument
from platform_assets.reports.registry import declared_reports
from platform_assets.reports.why import why_of_report
from streaming.base import counted, shown, told
from streaming.provenance import Change, InputRow, PinInForce, RejectedRow, What, Why
from streaming.provenance import why as explain
from streaming.reading import key_as_typed, value_as_typed, value_of_typed

_ROWS = 20
_WIDEST = 60
_NOTHING = "—"


def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="REPORT|VIEW",
            help="Name of a report or of a view; PIPELINE/VIEW where two have the same name.",
            autocompletion=why_names,
        ),
    ],
    key: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="The result that is meant, such as origin=JFK window_start=2013-01-01T11:00."
        ),
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Explain the first result; of a report, its first publication.")
    ] = False,
    current: Annotated[bool, typer.Option("--current", help="Explain what is current, as without an option.")] = False,
    as_of: AsOf = None,
    limit: Annotated[int | None, typer.Option(help="Rows to print; 20 if left out.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Explain one number by its rows: where they are from, what was rejected, late or corrected, and if they give it.

    Exits with 3 if the number is not what its rows give.
    """
    if first and current:
        raise typer.BadParameter("--first and --current exclude each other; give one of them.")
    answer = _answer(name, dict(map(_part, key or ())), first=first, as_of=as_of)
    if as_json:
        WhyDocument(lake=current_lake().root, **answer.document()).print()
    else:
        _print(answer, limit or _ROWS)
        _print_next(answer)
    if not answer.holds:
        raise typer.Exit(ExitCode.LAW_BROKEN)


def _answer(name: str, key: Mapping[str, str | None], *, first: bool, as_of: str | None) -> Why:
    report = declared_reports().get(name)
    what: What = "first" if first else "current"
    if report is not None:
        if first and as_of is not None:
            raise typer.BadParameter(f"{name} is a report, whose first publication is the same as of any batch.")
        lake = read_lake(report.pipeline, as_of)
        with spark_session(is_short=True, why="a number is computed again from its rows") as spark:
            return why_of_report(spark, lake, report, key, what)
    pipeline, operator = find_operator(name)
    # What can be told without Spark, such as that there is no such key, starts none.
    start = partial(spark_session, is_short=True, why="a number is computed again from its rows")
    return explain(pipeline, operator, key, what=what, as_of=as_of, lake=current_lake(), start=start)


def _part(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is no KEY=VALUE, such as origin=JFK.")
    return name, value_of_typed(value)


def _print(answer: Why, limit: int, depth: int = 0) -> None:
    of = f"{answer.pipeline}/{answer.operator}: {key_as_typed(answer.key)}"
    console.print(Text(of, style="bold"), soft_wrap=True)
    for row in answer.published:
        _say(f"{answer.what}: {_values({name: each for name, each in row.items() if name not in answer.key})}")
    console.print(Text(answer.said, style="bold red" if answer.agrees is False else ""), soft_wrap=True)
    for note in answer.notes:
        _say(f"note: {note}")
    counting, left = answer.counting, [row for row in answer.inputs if not row.counts]
    _print_lines(f"{counted(len(counting), 'row')} that it counts", map(_input, counting), limit)
    _print_lines(f"{counted(len(left), 'row')} that it does not count", map(_input, left), limit)
    _print_lines(f"{counted(len(answer.rejected), 'row')} rejected", map(_rejected, answer.rejected), limit)
    _print_lines("what was published", map(_change, answer.changes), limit)
    if depth == 0:
        decided = (*answer.rules.items(), *map(_pin, answer.pins), *_versions(answer.versions))
        about = [f"{name}: {text}" for name, text in decided]
        _print_lines("what decided, and what was read", [*about, f"read: {answer.files}"], len(about) + 1)
        verdicts = [
            f"{each.outcome}  {each.table} version {each.version}  {each.expectation}: {each.observed}"
            for each in answer.verdicts
        ]
        _print_lines("verdicts of the gate", verdicts, len(verdicts))
    for each in answer.upstream:
        _say("")
        _print(each, limit, depth + 1)


def _print_lines(title: str, lines: Iterable[str], limit: int) -> None:
    """A heading and the first of the lines below it; nothing where there are none."""
    every = list(lines)
    if not every:
        return
    _say(f"\n{title}")
    for line in every[:limit]:
        _say(f"  {line}")
    if len(every) > limit:
        _say(f"  ... and {len(every) - limit:,} more; --limit {limit * 10} shows more of them.")


def _input(row: InputRow) -> str:
    batch = "" if row.batch < 0 else f"batch {row.batch}"
    marks = [
        "takes back" if row.change < 0 else "",
        "" if row.repairs is None else f"repairs a row of batch {row.repairs}",
        "late" if row.late and row.counts else "",
        row.reason,
    ]
    return "  ".join(filter(None, (batch, _short(row.place), _values(row.values), ", ".join(filter(None, marks)))))


def _rejected(row: RejectedRow) -> str:
    since = "" if row.repaired_in is None else f"repaired in batch {row.repaired_in}"
    unsure = "" if row.certain else "its key could not be read"
    parts = (f"batch {row.batch}", _short(row.place), "; ".join(row.reasons), since, unsure)
    return "  ".join(filter(None, parts))


def _change(change: Change) -> str:
    at = "" if change.told_at is None else f" at {told(change.told_at)}"
    causes = f", by late rows: {'; '.join(map(_short, change.causes))}" if change.causes else ""
    return f"revision {change.revision}{at}, {change.reason}: {_difference(change)}{causes}"


def _difference(change: Change) -> str:
    """The values that are others, before and after."""
    was, now = (list(rows) for rows in (change.was, change.now))
    if len(was) == len(now) == 1:
        apart = (name for name in now[0] if was[0].get(name) != now[0][name])
        return ", ".join(f"{name} {_text(was[0].get(name))} → {_text(now[0][name])}" for name in apart)
    values = [*(f"- {_values(row)}" for row in was), *(f"+ {_values(row)}" for row in now)]
    return "; ".join(values)


def _pin(pin: PinInForce) -> tuple[str, str]:
    """The name of what is pinned, and for which rows it was how far."""
    seen = f"as of its batch {pin.newest}" if pin.newest >= 0 else "nothing of it yet"
    if pin.first is None:
        return pin.of, f"{seen}, for timers"
    batches = f"batch {pin.first}" if pin.first == pin.last else f"batches {pin.first} to {pin.last}"
    return pin.of, f"{seen}, for rows of {batches} of {pin.stream}"


def _versions(versions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in versions.items():
        is_of_many = isinstance(value, Mapping)
        yield name, ", ".join(f"{table} {version}" for table, version in value.items()) if is_of_many else str(value)


def _print_next(answer: Why) -> None:
    if not answer.holds:
        next_step(console, f"tidemark audit {answer.pipeline}", "says which law is broken, and what to do.")
    elif any("tidemark correct" in note for note in answer.notes):
        next_step(console, f"tidemark correct {answer.pipeline}", "counts the late rows that wait.")
    elif any(row.repaired_in is None for row in answer.rejected):
        next_step(console, f"tidemark repair {answer.pipeline} --preview", "tells which rejected rows would come back.")
    else:
        next_step(console, f"tidemark explain {answer.operator}", "tells how all of its results are computed.")


def _short(place: str) -> str:
    """A place without the folder of the lake."""
    root = current_lake().root.rstrip("/")
    return place.removeprefix(f"{root if '://' in root else Path(root).absolute()}/")


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in row.items())


def _text(value: object) -> str:
    text = shown(_NOTHING if value is None else value_as_typed(value))
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _say(text: str) -> None:
    console.print(text, soft_wrap=True)
