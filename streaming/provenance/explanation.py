"""`why`: the rows, rules and corrections that made one number, and the number computed again from exactly these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.base import RELEASE, ReadError, canonical
from streaming.declare import CURRENT, FIRST, Operator, Pipeline, declared_pipelines, operator_in_lake
from streaming.lake import Lake
from streaming.operators import generation_of, runtime_of
from streaming.provenance import histories, joins, keyed, lookups, selections, sql_views, windows
from streaming.provenance.answer import Evidence, Question, Row, What, Why, compared, evidence_of
from streaming.provenance.days import day_of_key, why_not_whole
from streaming.provenance.groups import unpublished_key
from streaming.provenance.lines import with_lines
from streaming.provenance.upstream import Explain, answers_of, upstream_of
from streaming.reading import key_as_texts, key_as_typed, near_keys, rows_of_key, stored_rows
from streaming.tables import delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_KINDS = (histories, joins, keyed, lookups, selections, sql_views, windows)
"""The modules that tell for each kind of operator which rows made a result."""
_SHOWN = 5


def why(
    pipeline: str | Pipeline,
    operator: str | Operator | None = None,
    key: Mapping[str, object] | None = None,
    *,
    what: What = "current",
    as_of: str | int | None = None,
    lake: Lake | None = None,
    spark: SparkSession | None = None,
    start: Callable[[], AbstractContextManager[SparkSession]] | None = None,
) -> Why:
    """Explain one result: the rows that made it, what became of it since, and whether they still give it.

    Args:
        pipeline: A pipeline, or its name.
        operator: A view or another operator of it; its first one if left out.
        key: The values of columns that tell which result is meant, such as `{"origin": "JFK", "window_start": ...}`.
            Texts stand for the values of other types; an instant without a zone is of UTC, and None is a null.
        what: What is current, or the first result.
        as_of: A batch, an instant or a savepoint as of which the lake is read; as it is now if left out.
        lake: That of the settings if left out.
        spark: The session that computes; the one that runs, or a new one if left out. None is started before it is
            known which result is meant.
        start: What gives that session instead, once it is needed, and ends it.

    Raises:
        DeclarationError: there is no such pipeline or operator.
        ReadError: no result, or several, have this key; the text lists those that come near.
        OperatorError: nobody can tell which rows made a result of this kind of operator.
    """
    of, asked, there = operator_in_lake(pipeline, operator, lake)
    if as_of is not None:
        from streaming.operations import lake_as_of

        there = lake_as_of(there, of, str(as_of))
    with _Session(spark, start) as session:
        return with_lines(there, asked.reads, explained(session, there, of, asked, dict(key or {}), what), session)


@dataclass
class _Session:
    """A session of Spark's that is started when it is asked for, and stopped at the end if it was."""

    given: SparkSession | None
    start: Callable[[], AbstractContextManager[SparkSession]] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def _running(self) -> SparkSession:
        from pyspark.sql import SparkSession

        from streaming.spark import start_session

        running = self.given or SparkSession.getActiveSession()
        if running is None and self.start is not None:
            return self._stack.enter_context(self.start())
        if running is None:
            running = start_session(is_short=True)
            self._stack.callback(running.stop)
        return running

    def __call__(self) -> SparkSession:
        """The session."""
        return self._running


def explained(
    session: Any, lake: Lake, pipeline: Pipeline, operator: Operator, key: Mapping[str, object], what: What
) -> Why:
    """The answer for one key of an operator; `session` gives the session of Spark's when it is called.

    Raises:
        ReadError, OperatorError: as `why`.
    """
    if lake.cut is not None:
        from streaming.operations import recomputed

        with recomputed(session(), lake, [operator]) as there:
            return _answered(_Asked(session, there, pipeline, operator, key, what))
    return _answered(_Asked(session, lake, pipeline, operator, key, what))


@dataclass(frozen=True)
class _Asked:
    """A key of an operator, as it was typed, to be explained."""

    session: Any
    lake: Lake
    pipeline: Pipeline
    operator: Operator
    key: Mapping[str, object]
    what: What

    @property
    def texts(self) -> dict[str, str | None]:
        """The key with texts for its values."""
        return key_as_texts(self.key)

    @property
    def name(self) -> str:
        """The operator, for people."""
        return f"{self.operator.kind_name} {self.operator.name!r}"


def _answered(asked: _Asked) -> Why:
    lake, pipeline, operator = asked.lake, asked.pipeline, asked.operator
    key, stored = _group(asked)
    question = Question(lake, pipeline, operator, asked.what, key, stored, asked.session)
    evidence = evidence_of(operator, question)
    not_whole = why_not_whole(lake, operator, key, stored)
    if not_whole:
        evidence = evidence.without(not_whole)
    agrees, said = compared(question.published, evidence)
    upstream, notes = _upstream(asked, evidence)
    return Why(
        pipeline.name,
        operator.name,
        operator.kind_name,
        asked.what,
        key,
        agrees,
        said,
        question.published,
        evidence.recomputed or (),
        evidence.inputs,
        evidence.rejected,
        evidence.changes,
        dict(_rules(operator)),
        evidence.pins,
        _versions(lake, operator, evidence),
        upstream=upstream,
        notes=(*evidence.notes, *notes),
        files=evidence.files,
    )


def _group(asked: _Asked) -> tuple[Row, tuple[Row, ...]]:
    """The key of the one group that is meant, with the values of all its columns, and the rows published of it."""
    operator, columns = asked.operator, asked.operator.explained_by
    for name in asked.key:
        if name not in columns:
            raise ReadError(
                f"{name!r} does not tell which result of {asked.name} is meant.",
                f"Name some of: {', '.join(columns)}.",
                operator=operator.name,
                value=name,
                choices=columns,
            )
    rows = _rows_of(asked)
    groups: dict[str, list[Row]] = {}
    for row in rows.to_pylist():
        groups.setdefault(repr([canonical(row[name]) for name in columns]), []).append(row)
    if len(groups) > 1:
        raise _several(asked, [{name: of[0][name] for name in columns} for of in groups.values()])
    if groups:
        (of_group,) = groups.values()
        return {name: of_group[0][name] for name in columns}, tuple(of_group)
    key = unpublished_key(operator, asked.lake, asked.texts, asked.session)
    if key is None:
        raise _none(asked, columns)
    return key, ()


def _rows_of(asked: _Asked) -> pa.Table:
    """The rows that are published of the key, with all columns of their table."""
    stored = stored_rows(asked.lake, asked.pipeline, asked.operator, _named(asked))
    if stored is not None:
        return rows_of_key(stored, asked.texts, day_of_key(asked.operator, asked.texts))
    from streaming.base import F

    frame = runtime_of(asked.operator, asked.lake).readable[_named(asked)](asked.session())
    for name, text in asked.texts.items():
        column = F.col(f"`{name}`")
        value = F.lit(text).try_cast(frame.schema[name].dataType)
        frame = frame.where(column.isNull() if text is None else column == value)
    return frame.toArrow()


def _named(asked: _Asked) -> str:
    """The name by which the rows are read; what is never corrected is a first result and current at once."""
    has_first = FIRST in runtime_of(asked.operator, asked.lake).readable
    return FIRST if asked.what == "first" and has_first else CURRENT


def _several(asked: _Asked, keys: list[Row]) -> ReadError:
    shown = "; ".join(map(key_as_typed, keys[:_SHOWN]))
    more = f" and {len(keys) - _SHOWN:,} more" if len(keys) > _SHOWN else ""
    typed = key_as_typed(asked.key) or "no key"
    return ReadError(
        f"{typed} is true of {len(keys):,} results of {asked.name}: {shown}{more}.",
        "Write all parts of one.",
        operator=asked.operator.name,
        value=typed,
        choices=tuple(map(key_as_typed, keys[:_SHOWN])),
    )


def _none(asked: _Asked, columns: tuple[str, ...]) -> ReadError:
    stored = stored_rows(asked.lake, asked.pipeline, asked.operator, _named(asked))
    near = () if stored is None else near_keys(stored, asked.texts, columns)
    return ReadError(
        f"no result of {asked.name} has {key_as_typed(asked.texts) or 'a key'}.",
        f"Near are: {'; '.join(near)}."
        if near
        else f"Run `tidemark run {asked.pipeline.name}` if nothing is there yet.",
        operator=asked.operator.name,
        value=key_as_typed(asked.texts),
        choices=near,
    )


def _rules(operator: Operator) -> Iterator[tuple[str, str]]:
    """The parts of a declaration that decide on the rows of an operator, by name."""
    for stream in operator.reads:
        for rule in stream.rules:
            yield f"{stream.name}: {rule.name}", rule.condition
        yield f"{stream.name}: clock", str(stream.clock)
        if stream.key:
            yield f"{stream.name}: key", f"{', '.join(stream.key)}, the newest by {stream.sequence or 'extract'}"
            if stream.deletes:
                yield f"{stream.name}: deletes", stream.deletes
    for name, meant in operator.whole_fingerprint.items():
        if meant not in (None, [], {}, ""):
            yield name, ", ".join(map(str, meant)) if isinstance(meant, list) else str(meant)
    if operator.late_policy:
        yield "late", operator.late_policy


def _versions(lake: Lake, operator: Operator, evidence: Evidence) -> dict[str, Any]:
    """The versions of what was read, and of what has computed."""
    import pyspark

    root = f"{lake.root.rstrip('/')}/"
    tables = {uri.removeprefix(root): version for uri, version in evidence.versions.items()}
    for suffix in ("", *(spec.suffix for spec in (*operator.tables, *operator.published) if spec.is_result)):
        table = delta.open_table(lake.table(operator, suffix))
        if table is not None:
            tables[lake.table(operator, suffix).removeprefix(root)] = table.version()
    fingerprint = json.dumps(operator.whole_fingerprint, sort_keys=True, default=str)
    return {
        "tidemark": RELEASE,
        "spark": pyspark.__version__,
        "declaration": hashlib.sha256(fingerprint.encode()).hexdigest()[:12],
        "generation": generation_of(delta.open_table(lake.table(operator))),
        "tables": tables,
    }


def _upstream(asked: _Asked, evidence: Evidence) -> tuple[tuple[Why, ...], tuple[str, ...]]:
    """The results of other operators, and rows of other streams, that the rows that count are made of."""
    answers, notes = list[Why](), list[str]()
    for stream in asked.operator.reads:
        rows = [row for row in evidence.inputs if row.counts and row.stream == stream.name]
        if asked.lake.cut is not None and stream.source.follows and rows:
            notes.append(f"{stream.name} follows other results, which are explained as they are now only")
            continue
        of_stream, more = upstream_of(asked.lake, stream, rows, _explain(asked))
        answers += of_stream
        notes += more
    of_operators, more = answers_of(evidence.made_of, "current", _explain(asked))
    return (*answers, *of_operators), (*notes, *more)


def _explain(asked: _Asked) -> Explain:
    def explain(operator: Operator, key: Row, what: What) -> Why:
        every = (asked.pipeline, *declared_pipelines().values())
        own = None if operator.reads_current else Pipeline(operator.reads[0], (operator,))
        pipeline = next((each for each in every if operator in each.operators), own or asked.pipeline)
        return _answered(_Asked(asked.session, asked.lake, pipeline, operator, key, what))

    return explain
