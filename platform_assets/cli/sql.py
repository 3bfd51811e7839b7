"""`tidemark sql`: SQL over all tables of the lake, one query or a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from platform_assets.cli.context import console, current_lake
from platform_assets.cli.render import print_first, rows_to_print
from streaming.base import TidemarkError
from streaming.declare import declared_pipelines
from streaming.reading import LakeDatabase, csv_lines, json_lines

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

_ENDS = ("\\q", "exit", "quit")
_WORDS = ("select", "from", "where", "group by", "order by", "limit", "join", "using", "count(*)", "sum", "avg", "desc")
Print = Callable[[str], None]


def sql(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="A query; without one, queries are asked for.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Rows to print; 20, or 5 if they are too wide for a table.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per row: all of them.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header: all rows.")] = False,
) -> None:
    """Query all tables of the lake with DuckDB's SQL; starts no Spark.

    A view is PIPELINE.VIEW, its other tables PIPELINE.VIEW.first and so on, the log of a stream PIPELINE.log.
    """
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other; give one of them.")
    database = LakeDatabase(current_lake(), declared_pipelines().values())

    def print_rows(query: str) -> None:
        if not (as_json or as_csv):
            print_first(console, database.table(query, rows_to_print(limit)), "rows", limit)
            return
        parts = database.batches(query, limit)
        first = next(parts)
        lines = json_lines if as_json else csv_lines
        for line in lines(first.column_names, parts):
            print(line)

    if query is not None:
        print_rows(query)
    elif sys.stdin.isatty():
        _prompt(database, print_rows)
    else:
        for each in _queries(sys.stdin):
            print_rows(each)


def _queries(lines: Iterable[str]) -> Iterator[str]:
    """The queries of the lines, each ended by a semicolon at the end of a line, or by the last line."""
    gathered: list[str] = []
    for line in lines:
        if not gathered and line.strip().lower() in _ENDS:
            return
        gathered.append(line.rstrip("\n"))
        if line.rstrip().endswith(";"):
            yield "\n".join(gathered)
            gathered = []
    if "".join(gathered).strip():
        yield "\n".join(gathered)


def _prompt(database: LakeDatabase, print_rows: Print) -> None:
    console.print(f"{len(database.tables)} tables; a query ends with a semicolon, \\q leaves.")
    for query in _queries(_typed_lines(database)):
        try:
            print_rows(query)
        except TidemarkError as error:
            console.print(str(error), style="red", soft_wrap=True)


def completer_of(database: LakeDatabase) -> Completer:
    """The completion of names of tables and columns."""
    from prompt_toolkit.completion import WordCompleter

    columns = (column for name in database.tables for column in database.columns_of(name))
    words = [*map(str, database.tables.values()), *dict.fromkeys(columns), *_WORDS]
    # A name has dots, and columns may begin with an underscore.
    return WordCompleter(words, ignore_case=True, WORD=True)


def _typed_lines(database: LakeDatabase) -> Iterator[str]:
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession(completer=completer_of(database), complete_while_typing=False)
    while True:
        try:
            yield session.prompt("tidemark> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
