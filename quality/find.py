"""Finds the suites of a pipeline: the generic ones, extended by the pipeline's own module where there is one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec

from quality.errors import SuiteError
from quality.expectations import Expectation, Suite
from quality.generic import log_suite, results_suite
from streaming.base import BrokenModule, import_or_explain
from streaming.declare import (
    CORRECTIONS,
    UPDATES,
    Operator,
    Pipeline,
    Stream,
    TableSpec,
    package_of,
    packages,
)

LOG = "log"
_CHANGES = "changes"


def role_of_log(pipeline: Pipeline, stream: Stream) -> str:
    """The role of a stream's log: `log` for the first stream, which is the only one of most pipelines.

    Of a stream with a key that is `changes`; `log` is then the role of its revisions.
    """
    what = _CHANGES if stream.revised else LOG
    return what if stream.name == pipeline.stream.name else f"{stream.name}/{what}"


def role_of_corrections(view: str) -> str:
    """The role of the corrections of the view of that name."""
    return f"{view}_{CORRECTIONS}"


def role_of_updates(view: str) -> str:
    """The role of the updates of the view of that name."""
    return f"{view}_{UPDATES}"


def operators_read(pipeline: Pipeline, reads: Collection[Operator | Stream] = ()) -> tuple[Operator, ...]:
    """Those operators of a pipeline that are among what is read, all where nothing is named."""
    return tuple(operator for operator in pipeline.operators if not reads or operator in reads)


def streams_read(pipeline: Pipeline, reads: Collection[Operator | Stream] = ()) -> tuple[Stream, ...]:
    """Those streams that are among what is read, as they are or through operators; all where nothing is named."""
    through = {stream for operator in operators_read(pipeline, reads) for stream in operator.reads}
    return tuple(stream for stream in pipeline.streams if not reads or stream in reads or stream in through)


def logs_read(pipeline: Pipeline, reads: Collection[Operator | Stream] = ()) -> tuple[Stream, ...]:
    """The streams that are read as each of their logs has them; one of changes comes before what it follows from."""
    streams = {stream.name for stream in streams_read(pipeline, reads)}
    return tuple(stream for stream in reversed(pipeline.logs) if stream.name in streams)


def roles_read(pipeline: Pipeline, reads: Collection[Operator | Stream] = ()) -> set[str]:
    """The roles of the tables behind what is read, the logs of its streams included."""
    operators = operators_read(pipeline, reads)
    logs = {role_of_log(pipeline, stream) for stream in logs_read(pipeline, reads)}
    return logs | {role for role, (operator, _) in result_tables(pipeline).items() if operator in operators}


def judged_tables(pipeline: Pipeline) -> dict[str, tuple[Operator, TableSpec]]:
    """The current results of a pipeline's operators that have a suite, by role, which is the table's name."""
    suites = suites_for(pipeline)
    return {role: table for role, table in result_tables(pipeline).items() if role in suites}


def result_tables(pipeline: Pipeline) -> dict[str, tuple[Operator, TableSpec]]:
    """The tables that what is current of the operators is made of, by role, which is the table's name."""
    return {
        operator.table_name(table.suffix): (operator, table)
        for operator in pipeline.operators
        for table in operator.tables
        if table.is_result
    }


def optional_roles(pipeline: Pipeline) -> set[str]:
    """The tables that may be absent: no row has come late yet, or one of the streams of an operator has no rows."""
    tables = result_tables(pipeline).items()
    return {role for role, (operator, table) in tables if table.suffix or not operator.begins_at_once}


def suites_for(pipeline: Pipeline) -> dict[str, Suite]:
    """The suite of every table of the pipeline by role: `log`, `<view>`, and `<view>_updates` and `<view>_corrections`
    where the view has them; likewise of joins.

    A module of the pipeline's name, in a package that `TIDEMARK_SUITES` names, adds to them with a dict `expectations`
    from role to expectations. The tables of other operators have a suite only if that module gives them expectations.

    Raises:
        SuiteError: that module cannot be imported, has no such dict, or speaks of a role that there is not, or there
            are two. A pipeline is never judged without the expectations that its own module would add.
    """
    suites = {role_of_log(pipeline, stream): log_suite(stream) for stream in pipeline.logs}
    tables = result_tables(pipeline)
    generic = {role: results_suite(operator, table.suffix) for role, (operator, table) in tables.items()}
    suites |= {role: suite for role, suite in generic.items() if suite is not None}
    module, own = _own_expectations(pipeline.name)
    # No suite follows from the declarations of the other operators.
    suites |= {role: Suite(tuple(own.pop(role))) for role in [*own] if role in tables and role not in suites}
    unknown = sorted(set(own) - set(suites))
    if unknown:
        raise SuiteError(
            f"{module!r} has expectations for {', '.join(map(repr, unknown))}; pipeline {pipeline.name!r} has: "
            f"{', '.join(dict.fromkeys((*suites, *tables)))}.",
            "Correct the name, or they would never be asked.",
            value=module,
            pipeline=pipeline.name,
            choices=tuple(dict.fromkeys((*suites, *tables))),
        )
    return {role: suite.extended(own.get(role, ())) for role, suite in suites.items()}


def _own_expectations(pipeline: str) -> tuple[str, dict[str, Sequence[Expectation]]]:
    """The name of the pipeline's own module, empty where it has none, and the expectations in it."""
    names = [name for package in packages("suites") for name in _named(package, pipeline)]
    if not names:
        return "", {}
    if len(names) > 1:
        raise SuiteError(
            f"pipeline {pipeline!r} has expectations in {' and in '.join(names)}",
            "keep one of them.",
            pipeline=pipeline,
        )
    (name,) = names
    module = import_or_explain(name)
    if isinstance(module, BrokenModule):
        raise SuiteError(f"{module}.", "Correct it; until then its pipeline is neither judged nor reported.")
    declared = getattr(module, "expectations", None)
    if not isinstance(declared, dict):
        raise SuiteError(f"module {name!r} has no dict 'expectations'", "give it one from role to expectations.")
    return name, dict(declared)


def _named(package: str, pipeline: str) -> Iterator[str]:
    """The module of the pipeline's name in a package, if there is one."""
    if isinstance(broken := package_of("suites", package), BrokenModule):
        raise SuiteError(f"{broken}.", "Correct it; until then no pipeline is judged or reported.")
    if find_spec(f"{package}.{pipeline}") is not None:
        yield f"{package}.{pipeline}"
