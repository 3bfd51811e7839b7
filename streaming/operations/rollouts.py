"""The rollout of a pipeline: how its declarations differ from the tables of the lake, and what brings these there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from streaming.base import (
    ChangedDeclaration,
    DeclarationError,
    LeaseError,
    LogError,
    OperatorError,
    T,
    arrow_schema,
    counted,
    interval,
    kind_of,
    utc_now,
)
from streaming.declare import (
    CURRENT,
    Delivery,
    Operator,
    Pipeline,
    Stream,
    broken_modules,
    declared_pipelines,
    find_pipeline,
)
from streaming.lake import Lake, Settings
from streaming.tables import FactChange, delta, recorded_declaration, storage

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from streaming.operations.rebuild import RebuildListener
    from streaming.service import Measure

State = Literal["new", "changed", "adopted", "gone", "unchanged"]
"""`new`: declared and not in the lake. `changed`: it goes on by an action only. `adopted`: it is another one, and goes
on from what there is. `gone`: its tables are in the lake, and it is not declared."""
Action = Literal["", "run", "rebuild", "redeliver", "refused", "drop"]
"""The way from the lake to the declaration: the next run, a rebuild, a word of somebody about a delivery, none
(`refused`: the old declaration has to come back), or removing what is left."""

_MEASURED_FOR = timedelta(days=30)
"""The time for which measures count: older ones may be of another machine."""


@dataclass(frozen=True)
class Volume:
    """Rows to be read, by the statistics of the files of the tables: `rows`, `bytes` on disk, and the days they are of.

    `first` and `last` are None where no file says of which days its rows are.
    """

    rows: int = 0
    bytes: int = 0
    days: int = 0
    first: date | None = None
    last: date | None = None


@dataclass(frozen=True)
class Rate:
    """The rows of logs that steps have followed `per_second`, measured over `steps` of `of`, an operator.

    `is_estimate`: it is another operator, the slowest one that was measured, as nobody has measured the own one.
    """

    per_second: float
    steps: int
    of: str
    is_estimate: bool = False


@dataclass(frozen=True)
class RolloutPart:
    """One thing that is declared, or was: how it differs from the lake, and what its `action` means.

    `kind`: `stream`, `delivery`, or the word for a kind of operator. `changes` are in words, `advice` says what to do
    where the action alone does not tell. `published` is the number of its results now, `state_rows` that of the rows
    that it keeps between steps, such as keys. `reads` is what a build reads, in `seconds` by `rate`; both None where
    nothing is built, and `seconds` where no rate was recorded. `followers`: what happens to what follows it.
    """

    name: str
    kind: str
    state: State
    changes: tuple[str, ...] = ()
    action: Action = ""
    advice: str = ""
    published: int = 0
    state_rows: int = 0
    reads: Volume | None = None
    rate: Rate | None = None
    seconds: float | None = None
    followers: tuple[str, ...] = ()

    @property
    def is_pending(self) -> bool:
        """True if something is to be done; what is gone is left until somebody removes it."""
        return self.state in ("new", "changed") or (self.state == "adopted" and self.action != "")


@dataclass(frozen=True)
class Rollout:
    """The parts of a pipeline, streams first, then operators, each after those that it follows, then deliveries.

    Tables of what is gone come last.
    """

    pipeline: str
    lake: str
    parts: tuple[RolloutPart, ...]

    @property
    def pending(self) -> tuple[RolloutPart, ...]:
        """The parts for which something is to be done before the lake is as it is declared."""
        return tuple(part for part in self.parts if part.is_pending)

    def part(self, name: str) -> RolloutPart:
        """The part of this name; KeyError where there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    def document(self) -> dict[str, Any]:
        """The rollout as `tidemark plan --json` prints it."""
        return {
            "pipeline": self.pipeline,
            "pending": len(self.pending),
            "parts": [dataclasses.asdict(part) for part in self.parts],
        }

    def __str__(self) -> str:
        states = [part.state for part in self.parts]
        told = [f"{states.count(state)} {state}" for state in dict.fromkeys(states) if state != "unchanged"]
        return f"{self.pipeline}: {', '.join(told) or 'nothing to do'}"


def rollout(pipeline: str | Pipeline, *, lake: Lake | None = None) -> Rollout:
    """The differences between the declarations of a pipeline and the lake, as `tidemark plan` tells them.

    It reads the logs of Delta tables alone: no row, and no Spark is started. Nothing is written.

    Raises:
        DeclarationError: there is no such pipeline.
    """
    of = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    there = Settings().lake if lake is None else lake
    rates = _Rates.recorded(there, of)
    parts = [_of_stream(there, of, stream) for stream in of.streams]
    parts += [_of_operator(there, of, operator, rates) for operator in upstream_first(of.operators)]
    parts += [_of_delivery(there, of, delivery) for delivery in of.deliveries]
    return Rollout(of.name, there.root, (*parts, *_gone(there, of)))


@dataclass(frozen=True)
class Applied:
    """The outcome of a rollout: the rows of each operator that was `rebuilt`, by name, in their order.

    `paused`: why an operator does not go on, by name. `held_by` runs the pipeline, so that what is new and what is
    adopted waits for its next start; empty where all of it is done.
    """

    rebuilt: Mapping[str, int]
    paused: Mapping[str, str]
    held_by: str = ""


class RolloutListener:
    """Is told how a rollout gets on; what is not overridden is not shown."""

    def rebuilds(self, operator: Operator) -> RebuildListener | None:
        """The rebuild of an operator begins; returns who is told how that gets on."""
        return None

    def rebuilt(self, operator: Operator, rows: int) -> None:
        """The tables of an operator were built anew, with so many rows, and are in place."""


def roll_out(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    now: Callable[[], datetime] = utc_now,
    listener: RolloutListener | None = None,
) -> Applied:
    """Bring the lake to the declarations of a pipeline, as `rollout` has told.

    Operators with results of another declaration are built anew one by one, upstream first, beside those that are read
    and while the pipeline runs. Then what is new is built, and what goes on is adopted, unless a process runs the
    pipeline: its next start does that. Nothing is ingested or delivered. Whatever kills it: running it again goes on
    where it was.

    Raises:
        LeaseError: another process builds the same operator.
        OperatorError, LogError: an operator cannot be built; those before it are.
    """
    # Both rooms import Spark.
    from streaming.operations.rebuild import rebuild

    listener = listener or RolloutListener()
    rebuilt: dict[str, int] = {}
    parts = {part.name: part for part in rollout(pipeline, lake=lake).parts if part.action == "rebuild"}
    for operator in upstream_first(pipeline.operators):
        if operator.name in parts:
            built = rebuild(spark, lake, pipeline, operator, now=now, listener=listener.rebuilds(operator))
            rebuilt[operator.name] = built.rows
            listener.rebuilt(operator, built.rows)
    if not any(part.action == "run" for part in rollout(pipeline, lake=lake).parts):
        return Applied(rebuilt, {}, _runner(lake, pipeline) if rebuilt else "")
    return _adopt(spark, lake, pipeline, now, rebuilt)


def _adopt(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime], rebuilt: Mapping[str, int]
) -> Applied:
    """Build what is new, and let what goes on be recorded, as a run does without its ingest and deliveries."""
    from streaming.service import Observer, Run, take_lease

    try:
        with take_lease(lake, pipeline), closing(Run(spark, lake, pipeline, Observer(now))) as run:
            run.check_operators()
            run.step_all()
            run.catch_up()
            run.publish_all()
            return Applied(rebuilt, {name: str(why) for name, why in run.paused.items()})
    except LeaseError:
        return Applied(rebuilt, {}, _runner(lake, pipeline))


def _runner(lake: Lake, pipeline: Pipeline) -> str:
    """Whoever runs the pipeline now, in words; empty where nobody does."""
    from streaming.service import holder_of

    holder = holder_of(lake, pipeline)
    return "" if holder is None else str(holder)


def upstream_first(operators: Iterable[Operator]) -> list[Operator]:
    """The operators, each after those of which it follows rows, however far away."""
    return sorted(operators, key=lambda operator: len(_upstream(operator)))


def _upstream(operator: Operator) -> frozenset[str]:
    """The names of the operators that an operator follows, however far away."""
    direct = [*operator.reads_current, *operator.dimensions]
    for stream in operator.reads:
        direct += _operators_of(stream)
    return frozenset(each.name for each in direct).union(*(_upstream(each) for each in direct))


def _operators_of(stream: Stream) -> list[Operator]:
    """The operators whose rows a stream takes, by way of streams, too."""
    found: list[Operator] = []
    for of, _ in stream.source.follows:
        found += [of] if isinstance(of, Operator) else _operators_of(of)
    return found


def _of_stream(lake: Lake, pipeline: Pipeline, stream: Stream) -> RolloutPart:
    # What functions here import imports Spark, which takes a second: importing this module should not.
    from streaming.log import declaration_changes_of, refused_source

    part = RolloutPart(stream.name, stream.kind_name, "unchanged")
    log = delta.open_table(lake.log(stream.revisions))
    if log is None:
        return replace(part, state="new", action="run", advice="its log begins with the next run")
    part = replace(part, published=delta.row_count(log))
    recorded = declaration_changes_of(lake, stream)
    misfits = _misfits(lake, log, stream)
    changes = _by_columns(log, stream) if recorded is None else recorded
    known = {(change.fact, change.part) for change in changes}
    changes += tuple(change for change in misfits if (change.fact, change.part) not in known)
    if not changes:
        return part
    words = tuple(change.words for change in changes)
    if any(change.fact == "revisions" for change in changes):
        advice = "what its changes follow from stays: give it back, or see what a run says, which refuses it"
        return replace(part, state="changed", action="refused", changes=words, advice=advice)
    if refused := refused_source(lake, stream, changes):
        return replace(part, state="changed", action="refused", changes=words, advice=refused)
    if misfits:
        names = " and ".join(repr(change.part) for change in misfits)
        advice = f"the type of {names} stays: give the old one back, and declare another column beside it"
        return replace(part, state="changed", action="refused", changes=words, advice=advice)
    return replace(
        part,
        state="adopted",
        action="run",
        changes=words,
        advice=_means(pipeline, changes),
        followers=tuple(_takers(pipeline, stream, changes)),
    )


def _by_columns(log: DeltaTable, stream: Stream) -> tuple[FactChange, ...]:
    """The columns that a log lacks, whose declaration nobody has written down."""
    there = {field.name for field in log.schema().fields}
    return tuple(
        FactChange("column", name, None, kind or "") for name, kind in stream.types.items() if name not in there
    )


def _misfits(lake: Lake, log: DeltaTable, stream: Stream) -> tuple[FactChange, ...]:
    """The columns whose declared types the log cannot take, so that each run refuses them."""
    there = {field.name: field.dataType for field in delta.columns_of(log).fields}
    misfits = []
    for column in stream.format.columns:
        field = _spark_field(column.name, column.type)
        if field is None:
            # A type that only Spark knows is asked for by the run alone.
            continue
        try:
            delta.added_columns(log, T.StructType([field]), lake.log(stream.revisions))
        except LogError:
            before = there[column.name].simpleString() if column.name in there else None
            misfits.append(FactChange("column", column.name, before, column.type))
    for name in stream.derived:
        # Of an expression the kind is certain, and the type within it, such as the digits of a decimal, is not.
        before = there[name].simpleString() if name in there else None
        kinds = kind_of(before), kind_of(stream.types[name])
        if None not in kinds and kinds[0] != kinds[1]:
            misfits.append(FactChange("derived column", name, before, stream.types[name]))
    return tuple(misfits)


def _spark_field(name: str, type_: str) -> T.StructField | None:
    """The column as Spark has it; None where that cannot be told without Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(arrow_schema(f"`{name}` {type_}")).fields[0]
    except DeclarationError:
        return None


def _means(pipeline: Pipeline, changes: Sequence[FactChange]) -> str:
    facts = {change.fact for change in changes}
    means = ["it holds from the next batch on, without a rebuild"]
    if any(change.fact in ("column", "derived column") and change.before is None for change in changes):
        means.append("older rows have null in a new column")
    if any(change.fact == "retention" and _is_shorter(change) for change in changes):
        means.append("`tidemark maintain` drops the days of the log that are older, for good")
    if "rule" in facts:
        means.append(f"rows that were rejected stay so until `tidemark repair {pipeline.name}`")
    return "; ".join(means)


def _is_shorter(retention: FactChange) -> bool:
    """True if a log may keep fewer days than before."""
    after = retention.after
    return bool(after) and (not retention.before or interval(after) < interval(retention.before))


def _takers(pipeline: Pipeline, stream: Stream, changes: Iterable[FactChange]) -> Iterator[str]:
    """The operators that have a changed column among their own, as those have that take all columns."""
    names = {change.part for change in changes if change.fact in ("column", "derived column")}
    for operator in pipeline.operators_of(stream) if names else ():
        taken = {column for spec in operator.columns_of() for of, column in spec.of if of == stream.name}
        if found := sorted(name for name in names if name in taken and name is not None):
            yield f"{operator.kind_name} {operator.name} takes {', '.join(found)}"


def _of_operator(lake: Lake, pipeline: Pipeline, operator: Operator, rates: _Rates) -> RolloutPart:
    from streaming.operators import check_retractions, declaration_changes, runtime_of
    from streaming.service import begins_anew

    part = RolloutPart(operator.name, operator.kind_name, "unchanged")
    own = delta.open_table(lake.table(operator))
    if refusal := _refused_by(lambda: check_retractions(lake, operator)):
        # A run asks this before it looks at the declaration, and however that is.
        return replace(part, state="new" if own is None else "changed", action="refused", advice=refusal)
    if own is None:
        part = replace(part, state="new", action="run", advice="the next run builds it from what is left of its logs")
        return _with_cost(lake, operator, part, rates)
    states = (spec.suffix for spec in operator.tables if spec.is_state)
    part = replace(
        part,
        published=delta.row_count(own),
        state_rows=sum(delta.row_count(delta.open_table(lake.table(operator, suffix))) for suffix in states),
    )
    every = _in_order(declaration_changes(lake, operator).values())
    breaking = _in_order(declaration_changes(lake, operator, runtime_of(operator, lake).counts_as).values())
    ready = _is_ready(lake, operator)
    if ready:
        advice = "it is built already, and whoever runs the pipeline puts it in place"
        return replace(part, state="changed", action="rebuild", changes=_words(every), advice=advice)
    if ready is None and not breaking and (refusal := _refused_at_start(lake, operator)):
        return replace(part, state="changed", action="refused", changes=_words(every), advice=refusal)
    if ready is None and not every:
        return part
    if ready is None and not breaking:
        advice = "it goes on from its tables as they are, without a rebuild"
        # Its tables go on telling what made them first, so nothing is left to be done.
        return replace(part, state="adopted", changes=_words(every), advice=advice)
    part = replace(part, state="changed", changes=_words(breaking or every))
    if ready is None and begins_anew(lake, pipeline, operator):
        advice = "nothing of it is published yet, so the next run begins it anew from the log"
        return _with_cost(lake, operator, replace(part, action="run", advice=advice), rates)
    if refusal := _refusal(lake, operator):
        return replace(part, action="refused", advice=refusal)
    # Of a rebuild that was given up; the next run would put it in place.
    advice = "" if ready is None else "tables of another declaration are built beside it; a rebuild removes them"
    part = replace(part, action="rebuild", advice=advice, followers=tuple(_followers(pipeline, operator)))
    return _with_cost(lake, operator, part, rates)


def _in_order(tables: Iterable[tuple[FactChange, ...]]) -> tuple[FactChange, ...]:
    """The changes of all tables of an operator, each once, however its values compare."""
    return tuple({(change.fact, change.part): change for changes in tables for change in changes}.values())


def _words(changes: Iterable[FactChange]) -> tuple[str, ...]:
    return tuple(change.words for change in changes)


def _refusal(lake: Lake, operator: Operator) -> str:
    """Why an operator cannot be built anew; empty where it can."""
    from streaming.operators import check_can_rebuild

    if operator.never_rebuilt:
        return f"it cannot be built anew: {operator.never_rebuilt}"
    return _refused_by(lambda: check_can_rebuild(lake, operator))


def _refused_by(check: Callable[[], None]) -> str:
    """The words by which a check refuses an operator; empty where it does not."""
    try:
        check()
    except OperatorError as refused:
        return str(refused)
    return ""


def _refused_at_start(lake: Lake, operator: Operator) -> str:
    """Why a run would pause an operator of the same declaration; empty where it would not, or where asking writes."""
    from streaming.operators import runtime_of

    tables = (delta.open_table(lake.table(operator, spec.suffix)) for spec in operator.tables)
    if any(table is not None and recorded_declaration(table) is None for table in tables):
        return ""
    return _refused_by(runtime_of(operator, lake).check)


def _is_ready(lake: Lake, operator: Operator) -> bool | None:
    """True if tables of this declaration wait to be put in place, False if some of another one; None for none."""
    from streaming.operators import next_of, ready_generation, runtime_of

    if ready_generation(lake, operator) is None:
        return None
    try:
        runtime_of(next_of(operator), lake).check()
    except OperatorError as refused:
        return not isinstance(refused, ChangedDeclaration)
    return True


@dataclass(frozen=True)
class _Rates:
    """The steps that streams of a pipeline have recorded lately, with the batches of the logs that they followed."""

    lake: Lake
    pipeline: Pipeline
    logs: Sequence[Measure]
    steps: Sequence[Measure]

    @classmethod
    def recorded(cls, lake: Lake, pipeline: Pipeline) -> _Rates:
        """The measures in the pipeline's `progress` table; none where no stream has run on and on."""
        from streaming.service import read_progress

        names = {operator.name for operator in pipeline.operators}
        measures = read_progress(lake, pipeline, utc_now() - _MEASURED_FOR)
        logs = [measure for measure in measures if measure.is_of_log]
        return cls(lake, pipeline, logs, [measure for measure in measures if measure.query in names])

    def of(self, operator: Operator) -> Rate | None:
        """The rate of an operator's own steps, or else of the slowest other one; None where none was measured."""
        return self._measured(operator) or self._slowest

    @cached_property
    def _slowest(self) -> Rate | None:
        """The least of the rates of the pipeline's operators, or where there is none, of those of other pipelines."""
        others = (each for each in declared_pipelines().values() if each != self.pipeline)
        of_others = (_Rates.recorded(self.lake, each) for each in others)
        rates = self._own or [rate for each in of_others for rate in each._own]
        slowest = min(rates, key=lambda rate: rate.per_second, default=None)
        return None if slowest is None else replace(slowest, is_estimate=True)

    @property
    def _own(self) -> list[Rate]:
        rates = map(self._measured, self.pipeline.operators)
        return [rate for rate in rates if rate is not None]

    def _measured(self, operator: Operator) -> Rate | None:
        steps = [step for step in self.steps if step.query == operator.name]
        seconds = sum(step.seconds for step in steps)
        rows = self._followed(operator, steps) if steps else 0
        return Rate(rows / seconds, len(steps), operator.name) if rows and seconds else None

    def _followed(self, operator: Operator, steps: Sequence[Measure]) -> int:
        """The rows that came into an operator's logs while it took these steps: those it has followed."""
        from streaming.service import ingest_query

        queries = {ingest_query(self.pipeline, stream) for stream in operator.reads}
        logs = [log for log in self.logs if log.query in queries]
        first, last = min(step.started for step in steps), max(step.ended for step in steps)
        before = max((log.ended for log in logs if log.ended <= first), default=first)
        return sum(log.rows for log in logs if before <= log.ended <= last)


def _with_cost(lake: Lake, operator: Operator, part: RolloutPart, rates: _Rates) -> RolloutPart:
    reads, rate = volume_of(lake, operator), rates.of(operator)
    seconds = None if rate is None or not rate.per_second else reads.rows / rate.per_second
    return replace(part, reads=reads, rate=rate, seconds=seconds)


def volume_of(lake: Lake, operator: Operator) -> Volume:
    """The rows that a build of the operator reads, once each, by the statistics of the files alone."""
    uris = [lake.log(stream) for stream in operator.reads]
    uris += [lake.table(of, CURRENT) for of in operator.reads_current]
    uris += [lake.path(table.place) for table in operator.external]
    rows, size, days = 0, 0, set[date]()
    for uri in dict.fromkeys(uris):
        table = delta.open_table(uri)
        if table is None:
            continue
        files = pa.table(table.get_add_actions(flatten=True))
        of_day = files["partition._day"].to_pylist() if "partition._day" in files.column_names else None
        for place, (count, bytes_) in enumerate(
            zip(files["num_records"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)
        ):
            if of_day is not None and of_day[place] is None:
                # Rejected rows and heartbeats, which no operator reads.
                continue
            rows, size = rows + (count or 0), size + (bytes_ or 0)
            if of_day is not None:
                days.add(of_day[place])
    return Volume(rows, size, len(days), min(days, default=None), max(days, default=None))


def _followers(pipeline: Pipeline, operator: Operator) -> Iterator[str]:
    """In words, what a rebuild of an operator means for whatever follows it."""
    for stream in pipeline.streams:
        if operator in [of for of, _ in stream.source.follows]:
            if stream.source.takes_back:
                yield f"stream {stream.name} follows each change"
            else:
                yield f"stream {stream.name} follows its first rows, and is refused until its log begins anew"
    for other in pipeline.operators:
        if operator in other.reads_current:
            yield f"{other.kind_name} {other.name} follows each change"
        elif operator.name in _upstream(other):
            yield f"{other.kind_name} {other.name} follows by way of others"
    for delivery in pipeline.deliveries:
        if delivery.of == operator:
            command = f"tidemark redeliver {pipeline.name} {delivery.name}"
            yield f"delivery {delivery.name} pauses until `{command} --go-on` or `--all`"


def _of_delivery(lake: Lake, pipeline: Pipeline, delivery: Delivery) -> RolloutPart:
    from streaming.deliveries import LedgerTable, ledger_of

    part = RolloutPart(delivery.name, delivery.kind_name, "unchanged")
    if ledger_of(lake, delivery) is None:
        return replace(part, state="new", action="run", advice="it begins with the next run")
    command = f"tidemark redeliver {pipeline.name} {delivery.name}"
    ledger = LedgerTable(lake, delivery, command)
    changes = ledger.declaration_changes()
    if not changes:
        return part
    if ledger.has_other_places(changes):
        advice = f"it pauses; give the old declaration back, or {ledger.way_out(changes)}"
        return replace(part, state="changed", action="refused", changes=_words(changes), advice=advice)
    advice = f"it pauses until `{command} --go-on` delivers what comes from now on by it, or `--all` everything"
    return replace(part, state="changed", action="redeliver", changes=_words(changes), advice=advice)


def _gone(lake: Lake, pipeline: Pipeline) -> Iterator[RolloutPart]:
    from streaming.log import noted_pipeline
    from streaming.operations.undeclared import undeclared_tables

    left: dict[str, list[str]] = {}
    for table in undeclared_tables(lake, pipeline):
        left.setdefault(table.operator, []).append(table.uri)
    names = {stream.name for each in (pipeline, *declared_pipelines().values()) for stream in each.streams}
    # A module that cannot be used may declare the stream of any folder.
    folders = set() if broken_modules() else {*storage.folders(lake.path())}
    for folder in sorted(folders - names):
        if noted_pipeline(lake, folder) == pipeline.name:
            advice = (
                f"its log and all that is beside it stay in {lake.path(folder)!r} until somebody removes that folder"
            )
            yield RolloutPart(folder, "stream", "gone", advice=advice)
    for name, uris in left.items():
        rows = delta.row_count(delta.open_table(min(uris, key=len)))
        told = f"{counted(len(uris), 'table')} left; `tidemark drop {name}` removes them"
        yield RolloutPart(name, "table", "gone", action="drop", advice=told, published=rows)
