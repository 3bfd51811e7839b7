"""History first, then what is live: two sources, one after the other, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from streaming.base import Dataset, DeclarationError, F, SourceError, check_type
from streaming.lake import Lake
from streaming.sources.generator import Generator
from streaming.sources.kafka import Kafka
from streaming.sources.source import Memory, Reading, Source, SourceBacklog, SourceComparison, Taken
from streaming.spark import JarGroup
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HISTORY, _LIVE = "history", "live"


@dataclass(frozen=True)
class Then(Source):
    """All that `history` holds, and then `live` on and on: one log and one clock, without a gap or an overlap.

    History is what is there when its last reading begins; what comes into it afterwards is in no batch, and told of.
    Its end is a commit of the log, so whatever kills the process, each row of either comes once. The clock goes on from
    where the history left the watermark, and waits for no source partition of the history any more.

    Which rows are in which of the two is for the declaration to say: `live` begins where it is declared to, such as
    `Kafka(..., start=...)` at the instant up to which the history reaches. Either may be a `Then` itself.

    `_origin` has the fields `history` and `live`, each with what its source tells, one of them null:
    `derived={"key": "cast(_origin.live.key as string)"}`.

    Raises:
        DeclarationError: the history has no end, or the start of what follows would leave a gap.
    """

    history: Source
    live: Source

    def __post_init__(self) -> None:
        for name, source in self._sources.items():
            check_type(f"{name} of Then", source, Source, f"a source, such as Files('landing/{name}')")
            if source.takes_back:
                raise DeclarationError(
                    f"{name} of Then is {source!r}, of which rows are taken back; follow it in a stream of its own."
                )
        if isinstance(self.history, Generator) and self.history.rows is None:
            raise DeclarationError(
                "the history of Then is a Generator without an end; give it a number of rows, such as rows=1_000."
            )
        if isinstance(self.live.parts[0], Kafka) and self.live.parts[0].start == "latest":
            raise DeclarationError(
                "start='latest' after a history would skip what comes into the topic while the history is read; write "
                "the instant up to which the history reaches, offsets by partition, or 'earliest'."
            )

    @property
    def _sources(self) -> dict[str, Source]:
        return {_HISTORY: self.history, _LIVE: self.live}

    @property
    def parts(self) -> tuple[Source, ...]:
        """Those of the history, then those of what follows."""
        return (*self.history.parts, *self.live.parts)

    @property
    def follows(self) -> tuple[tuple[Any, str], ...]:
        """Those of either."""
        return (*self.history.follows, *self.live.follows)

    @property
    def origin(self) -> str:
        """A field for each of the two."""
        return f"struct<{_HISTORY}: {self.history.origin}, {_LIVE}: {self.live.origin}>"

    @property
    def jars(self) -> tuple[JarGroup, ...]:
        """Those of either."""
        return tuple(dict.fromkeys((*self.history.jars, *self.live.jars)))

    @property
    def partitioned(self) -> bool:
        """Where one of the two is."""
        return self.history.partitioned or self.live.partitioned

    @property
    def larger_batches(self) -> str:
        """The ways to make batches of either source larger."""
        return f"{self.history.larger_batches} (history), {self.live.larger_batches} (live)"

    def location(self, lake: Lake) -> str:
        """Both places."""
        return f"{self.history.location(lake)}, then {self.live.location(lake)}"

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """Those of the history, then those of what follows."""
        return tuple(dict.fromkeys((*self.history.datasets(lake), *self.live.datasets(lake))))

    def checkpoint(self, given: str, memory: Memory) -> str:
        """A place for each query, as no query can go on in the checkpoint of another."""
        name = _part_read(memory)
        return self._sources[name].checkpoint(f"{given}/{name}", memory.get(name) or {})

    def may_begin_anew(self, memory: Memory) -> bool:
        """As the source that is read now says; and where it has brought nothing yet, there is nothing to repeat."""
        name = _part_read(memory)
        return (name == _LIVE and memory[_LIVE] is None) or self._sources[name].may_begin_anew(memory.get(name) or {})

    def after_end(self, memory: Memory) -> Memory | None:
        """That the history was read to its end, and nothing yet of what follows."""
        name = _part_read(memory)
        inner = self._sources[name].after_end(memory.get(name) or {})
        if inner is not None:
            return {**memory, name: inner}
        return {**memory, _LIVE: None} if name == _HISTORY else None

    def check_same(self, lake: Lake, memory: Memory) -> None:
        """Refuse where the source that is read now is another one."""
        name = _part_read(memory)
        self._sources[name].check_same(lake, memory.get(name) or {})

    def check_there(self, spark: SparkSession, reading: Reading) -> None:
        """Refuse where the source that is read now is gone, or the log was written from another source than this one.

        Raises:
            SourceError: naming what is missing.
        """
        if reading.memory and _HISTORY not in reading.memory:
            raise SourceError(
                f"the log was not written from {self.location(reading.lake)}, but from another source: a stream that "
                "has rows does not take on a history afterwards. Declare a stream of another name with it."
            )
        name = _part_read(reading.memory)
        self._sources[name].check_there(spark, _within(reading, name))

    def read(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """The rows of the source that is read now; while that is the history, the other one must be there as well.

        Raises:
            SourceError: one that is needed is missing, which hours of history should not go before.
        """
        self.check_there(spark, reading)
        name = _part_read(reading.memory)
        if name == _HISTORY:
            self.live.check_there(spark, _within(reading, _LIVE))
        return self._sources[name].read(spark, _within(reading, name))

    def take(self, spark: SparkSession, reading: Reading, query_batch: int, rows: DataFrame) -> Taken:
        """The rows that the source takes, with its origin in the field of its name."""
        name = _part_read(reading.memory)
        taken = self._sources[name].take(spark, _within(reading, name), query_batch, rows)

        def remember(written: Callable[[], DataFrame], counts: Mapping[str, int]) -> Memory:
            def own() -> DataFrame:
                return written().withColumn("_origin", F.col("_origin")[name])

            return {**reading.memory, name: taken.remember(own, counts)}

        origins = [
            F.col("_origin").alias(each) if each == name else F.lit(None).cast(source.origin).alias(each)
            for each, source in self._sources.items()
        ]

        def located() -> DataFrame:
            return taken.rows().withColumn("_origin", F.struct(*origins))

        return Taken(located, remember, committed=taken.committed)

    def check_repeated(self, reading: Reading, query_batch: int) -> None:
        """As the source that is read now."""
        name = _part_read(reading.memory)
        self._sources[name].check_repeated(_within(reading, name), query_batch)

    def partition_of(self, origin: Column) -> Column:
        """That of the source which the row is from."""
        return self._of_either(origin, lambda source, own: source.partition_of(own))

    def order_of(self, origin: Column) -> Column:
        """As each of the two orders its own rows."""
        return F.struct(*(source.order_of(origin[name]) for name, source in self._sources.items()))

    def is_typed(self, origin: Column) -> Column:
        """As the source says which the row is from."""
        return self._of_either(origin, lambda source, own: source.is_typed(own))

    def time_of(self, origin: Column) -> Column:
        """When the source had the row which it is from."""
        return self._of_either(origin, lambda source, own: source.time_of(own))

    def _of_either(self, origin: Column, column_of: Callable[[Source, Column], Column]) -> Column:
        history, live = (column_of(source, origin[name]) for name, source in self._sources.items())
        return F.when(origin[_HISTORY].isNotNull(), history).otherwise(live)

    def of_row(self, origin: Mapping[str, Any]) -> tuple[Source, Mapping[str, Any]]:
        """The one of the two that has told of the row, or the one within it."""
        name = _LIVE if origin.get(_HISTORY) is None else _HISTORY
        return self._sources[name].of_row(origin[name])

    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """As the source that is read now: what follows has planned a batch only once the history had ended."""
        name = _LIVE if _has_checkpoint(checkpoint, _LIVE) else _HISTORY
        return self._sources[name].describe_batch(f"{checkpoint}/{name}", query_batch)

    def explain(self, spark: SparkSession, reading: Reading, text: str) -> SourceError | None:
        """As the source that is read now."""
        name = _part_read(reading.memory)
        return self._sources[name].explain(spark, _within(reading, name), text)

    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[Memory], SourceBacklog]:
        """Counts what waits in the history, and once nothing does, what waits in the other one."""

        return _ThenBacklog(self.history, self.live, lake, checkpoint).count

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """The differences in either source; a history that is not there any more is no difference."""
        compared = []
        for name, source in self._sources.items():
            if name == _HISTORY and not _is_there(spark, lake, source):
                continue
            compared.append(source.compare(spark, lake, _origins_of(origins, name)))
        return SourceComparison(
            sum(each.ingested for each in compared),
            " and ".join(dict.fromkeys(each.unit for each in compared)),
            tuple(change for each in compared for change in each.changes),
        )

    def recorded(self, checkpoint: str, lake: Lake) -> str | None:
        """The place that a checkpoint of either source tells of."""
        places = (source.recorded(f"{checkpoint}/{name}", lake) for name, source in self._sources.items())
        return next((place for place in places if place is not None), None)

    def move(self, checkpoint: str, recorded: str, there: Lake, to: Lake) -> int:
        """Both go with it, but for a history whose end has come: nothing of it waits any more."""
        waiting = 0
        for name, source in self._sources.items():
            if name == _HISTORY and _has_checkpoint(checkpoint, _LIVE) and not _has_checkpoint(checkpoint, _HISTORY):
                continue
            own = f"{checkpoint}/{name}"
            waiting += source.move(own, source.recorded(own, to) or source.location(to), there, to)
        return waiting


def _within(reading: Reading, name: str) -> Reading:
    """The reading that one of the two sources is given: its own part of everything."""

    def origins() -> DataFrame | None:
        rows = reading.origins()
        return None if rows is None else _origins_of(rows, name)

    return Reading(reading.lake, f"{reading.checkpoint}/{name}", reading.memory.get(name) or {}, origins)


def _origins_of(origins: DataFrame, name: str) -> DataFrame:
    """The rows of one of the two, with its own `_origin`, and what the log adds to that."""
    origin = F.col("_origin")
    own = origins.where(origin[name].isNotNull())
    added = {each for each in own.select("_origin.*").columns if each not in (_HISTORY, _LIVE)}
    placed = reduce(lambda of, each: of.withField(each, origin[each]), sorted(added), origin[name])
    return own.select(placed.alias("_origin"))


def _is_there(spark: SparkSession, lake: Lake, source: Source) -> bool:
    try:
        source.check_there(spark, Reading(lake, ""))
    except SourceError:
        return False
    return True


def _part_read(memory: Memory) -> str:
    """Which of the two is read; from the end of the history on there is an entry of the other."""
    return _LIVE if _LIVE in memory else _HISTORY


def _has_checkpoint(checkpoint: str, name: str) -> bool:
    """True if there is a checkpoint of one of the two sources below that of the stream."""
    return any(True for _ in storage.walked(f"{checkpoint}/{name}", lambda name: not name.startswith(".")))


class _ThenBacklog:
    """Counts what waits in the history, and once nothing does, what waits in the other one."""

    def __init__(self, history: Source, live: Source, lake: Lake, checkpoint: str) -> None:
        self._history = history
        self._live = live
        self._lake = lake
        self._checkpoint = checkpoint

    def count(self, memory: Memory) -> SourceBacklog:
        """The backlog now; a warning names what came into the history after its end.

        Raises:
            SourceError: the source that is read now does not answer.
        """
        if _part_read(memory) == _HISTORY:
            waiting = self._in_history(memory.get(_HISTORY) or {})
            return waiting if waiting.items else self._in_live({})
        waiting = self._in_live(memory[_LIVE] or {})
        return replace(waiting, warning=" ".join(filter(None, (waiting.warning, self._too_late(memory)))))

    def _too_late(self, memory: Memory) -> str:
        # A stream that was restored elsewhere has no checkpoint of the history.
        if not _has_checkpoint(self._checkpoint, _HISTORY):
            return ""
        try:
            late = self._in_history(memory[_HISTORY])
        except SourceError:
            # Once it was read, a history may be removed.
            return ""
        if not late.items:
            return ""
        return (
            f"{late} in {self._history.location(self._lake)} that came after it had been read to its end, and no batch "
            f"takes them: bring them into {self._live.location(self._lake)}."
        )

    @cached_property
    def _in_history(self) -> Callable[[Memory], SourceBacklog]:
        return self._history.backlog(self._lake, f"{self._checkpoint}/{_HISTORY}")

    @cached_property
    def _in_live(self) -> Callable[[Memory], SourceBacklog]:
        return self._live.backlog(self._lake, f"{self._checkpoint}/{_LIVE}")
