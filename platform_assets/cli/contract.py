"""`tidemark contract`: a data contract is held against what is declared, and one is written of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from platform_assets.cli.completion import explained_names
from platform_assets.cli.context import AsJson, console, current_lake, find_operator
from platform_assets.cli.documents import ContractDifferenceDocument, ContractDocument, ContractReaderDocument
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step
from platform_assets.reports.registry import declared_reports
from streaming.base import DeclarationError
from streaming.contracts import (
    Difference,
    Terms,
    differences,
    is_compatible,
    read_contract,
    renamed_terms,
    written_contract,
)
from streaming.declare import (
    CURRENT,
    AffectedReader,
    Operator,
    Pipeline,
    Stream,
    affected_readers,
    broken_modules,
    declared_pipelines,
    terms_of_operator,
    terms_of_stream,
)
from streaming.tables import delta, sql_type

_WORDS = {"readers": "breaks readers", "writers": "breaks writers", "nobody": "breaks nobody"}


@dataclass(frozen=True)
class _Consequence:
    difference: Difference
    readers: Sequence[AffectedReader]


def contract(
    action: Annotated[
        Literal["check", "export"],
        typer.Argument(help="check: tell which changes break whom. export: print a contract of what is declared."),
    ],
    of: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME",
            help="check: the contract's file. export: a declared stream or view.",
            autocompletion=explained_names,
        ),
    ],
    stream_name: Annotated[
        str | None,
        typer.Argument(metavar="[STREAM]", help="The declared stream to compare with.", autocompletion=explained_names),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An older version of the contract to compare with.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="The table, where the file has several.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACE", help="A place in the file that is left out, as the stream does."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a data contract, or write one of a stream or view; starts no Spark.

    Ends with code 3 where somebody would break: who reads the table, or who writes what comes into it.
    """
    if action == "export":
        if stream_name or against or table or without or as_json:
            raise typer.BadParameter("export takes the name of a stream or view, and nothing else.")
        print(written_contract(_declared_terms(of)), end="")
        return
    after = read_contract(of, table, without or ())
    pipeline, stream = (None, None) if stream_name is None else _find_stream(stream_name)
    before, compared = None, ""
    if against is not None:
        before, compared = read_contract(against, table, without or ()), f"{against}"
    elif pipeline is not None and stream is not None:
        before, after = _of_file(stream, pipeline), renamed_terms(after, stream.name)
        compared = f"stream {stream.name!r} of pipeline {pipeline.name!r}"
    found = () if before is None else differences(before, after)
    told = [_Consequence(each, [] if stream is None else _readers(stream, each)) for each in found]
    if as_json:
        _document(of, after, compared, told).print()
    else:
        _print(of, after, compared, told)
    if not is_compatible(found):
        raise typer.Exit(ExitCode.LAW_BROKEN)


def _of_file(stream: Stream, pipeline: Pipeline) -> Terms:
    """The terms of a declared stream, less the rules that it has beside those of its contract."""
    terms = terms_of_stream(stream, pipeline.owner)
    if stream.contract is None:
        return terms
    return replace(terms, conditions=tuple(each for each in terms.conditions if each.name in stream.contract.rules))


def _readers(stream: Stream, difference: Difference) -> list[AffectedReader]:
    found = [*affected_readers(declared_pipelines().values(), stream, difference)]
    operators = [each.operator for each in found if each.operator is not None]
    return [*found, *_reports(operators, stream if difference.is_gone else None)]


def _reports(operators: Iterable[Operator], stream: Stream | None) -> Iterable[AffectedReader]:
    for name, report in declared_reports().items():
        read = next((each for each in operators if each in report.operators), None)
        if read is not None:
            yield AffectedReader("report", name, report.pipeline.name, f"it reads {read.name!r}")
        elif stream is not None and stream in report.reads:
            yield AffectedReader("report", name, report.pipeline.name, f"it reads stream {stream.name!r}")


def _find_stream(name: str) -> tuple[Pipeline, Stream]:
    wanted, _, last = name.rpartition("/")
    every = [(pipeline, stream) for pipeline in declared_pipelines().values() for stream in pipeline.streams]
    matching = [(p, s) for p, s in every if s.name == last and wanted in ("", p.name)]
    if len({id(stream) for _, stream in matching}) != 1:
        names = ", ".join(f"{pipeline.name}/{stream.name}" for pipeline, stream in matching or every) or "none"
        text = f"there {'are several streams' if matching else 'is no stream'} {name!r}: {names}. Write one of these."
        raise DeclarationError("\n".join([text, *map(str, broken_modules())]))
    return matching[0]


def _declared_terms(name: str) -> Terms:
    _, _, last = name.rpartition("/")
    streams = {stream.name for pipeline in declared_pipelines().values() for stream in pipeline.streams}
    if last in streams:
        pipeline, stream = _find_stream(name)
        return terms_of_stream(stream, pipeline.owner)
    of, operator = find_operator(name)
    return terms_of_operator(operator, of.owner, _types_of(operator))


def _types_of(operator: Operator) -> dict[str, str]:
    """The types of an operator's columns in the lake, where its table is there."""
    opened = delta.open_table(current_lake().table(operator, CURRENT if operator.overlaid else ""))
    opened = opened or delta.open_table(current_lake().table(operator))
    if opened is None:
        return {}
    import json

    fields: list[dict[str, Any]] = json.loads(opened.schema().to_json())["fields"]
    return {each["name"]: sql_type(each["type"]) for each in fields}


def _print(file: str, terms: Terms, compared: str, told: Sequence[_Consequence]) -> None:
    def line(text: str) -> None:
        console.print(text, soft_wrap=True)

    line(
        f"{terms.contract}: {len(terms.columns)} columns, {len(terms.conditions)} rules, "
        f"{len(terms.contract.checks)} checks" + (f"; against {compared}" if compared else "")
    )
    for breaks, word in _WORDS.items():
        for each in told:
            if each.difference.breaks == breaks:
                line(f"{word}: {each.difference.text}")
                for reader in each.readers:
                    line(f"  {reader.what} {reader.name} of {reader.pipeline}: {reader.why}")
    if compared and not told:
        line("They ask for the same.")
    if terms.contract.untaken:
        line(f"changes nothing here: {'; '.join(terms.contract.untaken)}")
    if not compared:
        next_step(
            console,
            f"tidemark contract check {quote(str(file))} STREAM",
            "tells what of a declared stream is otherwise.",
        )


def _document(file: str, terms: Terms, compared: str, told: Sequence[_Consequence]) -> ContractDocument:
    return ContractDocument(
        file=file,
        id=terms.contract.id,
        version=terms.contract.version,
        status=terms.contract.status,
        against=compared or None,
        compatible=is_compatible(each.difference for each in told),
        differences=[
            ContractDifferenceDocument(
                breaks=each.difference.breaks,
                text=each.difference.text,
                column=each.difference.column or None,
                readers=[
                    ContractReaderDocument(what=one.what, name=one.name, pipeline=one.pipeline, why=one.why)
                    for one in each.readers
                ],
            )
            for each in told
        ],
        untaken=list(terms.contract.untaken),
    )
