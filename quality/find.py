"""Finds the suites of a pipeline: the generic ones, extended by the pipeline's own module where there is one.

The generic ones follow from the declarations alone, so that a new stream needs nobody to write any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec

from quality.errors import SuiteError
from quality.expectations import Expectation, Suite, always, fresh, nothing_from, of_types, unique
from streaming.base import BrokenModule, import_or_explain, interval
from streaming.declare import (
    CORRECTIONS,
    UPDATES,
    WITHHELD,
    Freshness,
    Operator,
    Pipeline,
    Stream,
    TableSpec,
    freshness_of,
    package_of,
    packages,
)

LOG = "log"
_CHANGES = "changes"
GREATEST_REJECTED_SHARE = 0.02
_SINCE_KEPT = """
        WHERE coalesce(_origin.repairs, _batch) >= coalesce(
            (
                SELECT min(_batch)
                FROM {{batch}} CROSS JOIN (SELECT max(_watermark) AS newest FROM {{batch}})
                WHERE _watermark >= timestampadd(SECOND, -{seconds:.0f}, newest)
            ),
            0
        )
"""
"""Leaves the batches whose days retention has not reached: rejected rows stay when the valid ones beside them go."""
_OWN = {"_rejected": "array<string>", "_batch": "bigint", "_watermark": "timestamp", "_day": "date"}


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


def log_suite(stream: Stream) -> Suite:
    """Types as declared, few rejected rows, and a clear line between valid and rejected."""
    return Suite(
        (
            of_types("column_types", {column.name: column.type for column in stream.format.columns} | _OWN),
            nothing_from(
                "rejected_share",
                _rejected_share(stream),
                f"at most {GREATEST_REJECTED_SHARE:.0%} of the rows read are rejected and not repaired",
            ),
            always(
                "valid_has_event_time",
                f"_rejected is not null or ({_has_time(stream)} and _day is not null)",
                f"every valid row has its event time {stream.event_time}",
            ),
            always(
                "valid_or_rejected",
                "_rejected is null or (_day is null and (_raw is not null "
                f"or exists(_rejected, each -> startswith(each, '{WITHHELD}: '))))",
                "a rejected row is on no day and keeps its payload, or says that it is withheld",
            ),
            *_of_values(stream),
            *_of_contract(stream),
        ),
        # A heartbeat was not read from the source, so it must not lower the share of rejected rows.
        only="_origin is not null",
    )


def _rejected_share(stream: Stream) -> str:
    """The query that has a row where too many rows are rejected."""
    kept = "" if stream.retention is None else _SINCE_KEPT.format(seconds=interval(stream.retention).total_seconds())
    # A repaired row is in the log twice: as it was rejected, and as the valid row that repairs it.
    return f"""
    SELECT rejected, rows_read
    FROM (
        SELECT count_if(_rejected is not null) - count_if(_origin.repairs is not null) AS rejected,
               count_if(_origin.repairs is null) AS rows_read
        FROM {{batch}}{kept}
    )
    WHERE rejected > {GREATEST_REJECTED_SHARE} * rows_read
"""


def _of_values(stream: Stream) -> Iterator[Expectation]:
    """The values of which each has to be fresh, by the stream's own clock."""
    time = f"CASE WHEN _day IS NOT NULL THEN `{stream.event_time}` END"
    yield from _fresh_values(freshness_of(stream.fresh_within), time, "max(_watermark)")


def _fresh_values(freshness: Freshness | None, time: str, clock: str | None = None) -> Iterator[Expectation]:
    """The values that `fresh_within` asks for; a report is right without one, so that it is told and lets pass."""
    if freshness is not None and freshness.by:
        yield fresh(
            "values_are_fresh",
            freshness.by,
            freshness.within,
            time=time,
            clock=clock,
            retired_after=freshness.retired_after,
            level="warn",
        )


def _of_contract(stream: Stream) -> Iterator[Expectation]:
    """The checks of the contract that the stream follows, over its rows as they come; none over what follows them."""
    for check in () if stream.contract is None or stream.revised else stream.contract.checks:
        meaning = check.meaning or f"{check.query} {check.expected}"
        yield nothing_from(check.name, check.defects, meaning, level="error" if check.severity == "error" else "warn")


def _has_time(stream: Stream) -> str:
    """The condition of a row that has the time it needs; one that deletes needs none."""
    known = f"{stream.event_time} is not null"
    return known if stream.exempt is None or stream.revised else f"({known} or {stream.exempt})"


def results_suite(operator: Operator, suffix: str = "") -> Suite | None:
    """The laws of the rows of an operator's table, by its suffix, and of its own the values that have to be fresh.

    None where the declaration says nothing of them.
    """
    laws = operator.laws_of(suffix)
    once = (unique(law.name, law.unique) for law in laws if law.unique)
    conditions = (always(law.name, law.condition, law.meaning) for law in laws if not law.unique)
    freshness = None if suffix else freshness_of(getattr(operator, "fresh_within", None))
    expectations = (*once, *conditions, *_fresh_values(freshness, "window_end"))
    return Suite(expectations) if expectations else None
