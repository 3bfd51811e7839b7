"""`tidemark why`: the rows, rules and corrections behind one number, and whether they still give it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from platform_assets.cli.completion import why_names
from platform_assets.cli.context import AsJson, AsOf, console, current_lake, find_operator, spark_session
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step, print_rows
from platform_assets.cli.why_documents import WhyDocument
from platform_assets.reports.registry import declared_reports
from platform_assets.reports.why import why_of_report
from streaming.base import counted, shown, told
from streaming.provenance import Change, InputRow, What, Why
from streaming.provenance import why as explain
from streaming.reading import key_as_typed, value_as_typed

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
    first: Annotated[bool, typer.Option("--first", help="Explain the first result.")] = False,
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
        _print_next(name, answer)
    if not answer.holds:
        raise typer.Exit(ExitCode.LAW_BROKEN)


def _answer(name: str, key: Mapping[str, str], *, first: bool, as_of: str | None) -> Why:
    report = declared_reports().get(name)
    if report is not None:
        if first or as_of is not None:
            raise typer.BadParameter(
                f"{name} is a report, which is explained as it was published; leave the option out."
            )
        with spark_session(is_short=True, why="a number is computed again from its rows") as spark:
            return why_of_report(spark, current_lake(), report, key)
    pipeline, operator = find_operator(name)
    # What can be told without Spark, such as that there is no such key, starts none.
    start = partial(spark_session, is_short=True, why="a number is computed again from its rows")
    what: What = "first" if first else "current"
    return explain(pipeline, operator, key, what=what, as_of=as_of, lake=current_lake(), start=start)


def _part(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is no KEY=VALUE, such as origin=JFK.")
    return name, value


def _print(answer: Why, limit: int, depth: int = 0) -> None:
    _say(f"{'  ' * depth}{answer.pipeline}/{answer.operator}: {key_as_typed(answer.key)}", style="bold")
    for row in answer.published:
        values = {name: value for name, value in row.items() if name not in answer.key}
        _say(f"{answer.what}: {_values(values)}")
    _say(answer.said, style="" if answer.agrees is not False else "bold red")
    counting = answer.counting
    _print_inputs(f"{counted(len(counting), 'row')} that it counts", counting, limit, with_reason=False)
    left = [row for row in answer.inputs if not row.counts]
    _print_inputs(f"{counted(len(left), 'row')} that it does not count", left, limit, with_reason=True)
    _print_rejected(answer, limit)
    _print_changes(answer.changes)
    for note in answer.notes:
        _say(f"note: {note}")
    if depth == 0:
        _print_about(answer)
    for each in answer.upstream:
        console.print()
        _print(each, limit, depth + 1)


def _print_inputs(title: str, rows: Sequence[InputRow], limit: int, *, with_reason: bool) -> None:
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    heads = ["from", "batch", "came", *names, "why not" if with_reason else "late"]
    lines = [
        [
            _short(row.place),
            "" if row.batch < 0 else str(row.batch),
            "" if row.ingested_at is None else told(row.ingested_at),
            *(_text(row.values.get(name)) for name in names),
            row.reason if with_reason else "late" if row.late else "",
        ]
        for row in rows[:limit]
    ]
    print_rows(console, title, heads, lines)
    if len(rows) > limit:
        _say(f"... and {len(rows) - limit:,} more; --limit {limit * 10} shows more of them.")


def _print_rejected(answer: Why, limit: int) -> None:
    if not answer.rejected:
        return
    lines = [
        [
            _short(row.place),
            str(row.batch),
            "; ".join(row.reasons),
            "" if row.repaired_in is None else f"repaired in batch {row.repaired_in}",
            "yes" if row.certain else "its key could not be read",
        ]
        for row in answer.rejected[:limit]
    ]
    title = f"{counted(len(answer.rejected), 'row')} that were rejected"
    print_rows(console, title, ["from", "batch", "why", "since", "of this result"], lines)


def _print_changes(changes: Sequence[Change]) -> None:
    if not changes:
        return
    lines = [
        [
            str(change.revision),
            told(change.told_at),
            change.reason,
            _difference(change),
            ", ".join(map(_short, change.causes)) or _NOTHING,
        ]
        for change in changes
    ]
    print_rows(console, "What was published", ["revision", "at", "reason", "values", "by late rows"], lines)


def _difference(change: Change) -> str:
    """The values that are others, before and after."""
    was, now = (list(rows) for rows in (change.was, change.now))
    if len(was) == len(now) == 1:
        apart = (name for name in now[0] if was[0].get(name) != now[0][name])
        return ", ".join(f"{name} {_text(was[0].get(name))} → {_text(now[0][name])}" for name in apart)
    values = [*(f"- {_values(row)}" for row in was), *(f"+ {_values(row)}" for row in now)]
    return "; ".join(values)


def _print_about(answer: Why) -> None:
    lines = [*([name, text] for name, text in answer.rules.items()), *_versions(answer.versions)]
    lines.append(["read", str(answer.files)])
    print_rows(console, "What decided, and what was read", ["", ""], lines)
    if answer.verdicts:
        verdicts = [
            [each.table, str(each.version), each.expectation, each.outcome, each.observed] for each in answer.verdicts
        ]
        print_rows(console, "The gate", ["table", "version", "expectation", "outcome", "observed"], verdicts)


def _versions(versions: Mapping[str, Any]) -> Iterator[list[str]]:
    for name, value in versions.items():
        if isinstance(value, Mapping):
            yield [name, ", ".join(f"{table} {version}" for table, version in value.items())]
        else:
            yield [name, str(value)]


def _print_next(name: str, answer: Why) -> None:
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
    return place.removeprefix(f"{current_lake().root.rstrip('/')}/")


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in row.items())


def _text(value: object) -> str:
    text = shown(_NOTHING if value is None else value_as_typed(value))
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _say(text: str, style: str = "") -> None:
    console.print(text, style=style or None, highlight=False, markup=False, soft_wrap=True)
