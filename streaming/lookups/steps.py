"""One step of an enrichment: new rows of the log join those that wait, and what was answered in time is written.

Answers are no function of the log, so each row's place tells whether it is done: a row of the log up to where the
tables are is in the results, in the failures, or pending. Whatever kills a step, between any two of its commits too,
what is still to be asked follows from the three tables.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    AT,
    BATCH,
    ORIGIN,
    STEP_COLUMN,
    WRITTEN_AT,
    DeclarationError,
    DimensionError,
    encoder,
    interval,
    python_values,
    to_micros,
    utc_now,
)
from streaming.declare import FAILED, PENDING, Enriched, text_number
from streaming.keyed import SOURCE
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after, head
from streaming.lookups.calls import Answer, Calls, Question, await_all, await_any, request_key
from streaming.lookups.tables import (
    ANSWERED_AT,
    ASKED_AT,
    ATTEMPT,
    ATTEMPTS,
    CACHED,
    ERROR,
    REQUEST,
    VERSION,
    Place,
    Reached,
    rows_between,
    rows_to_ask_for,
    select_rows,
    selected_schema,
    spark_schema,
    table_schemas,
    taken,
)
from streaming.operators import StateCleaner, Written, create_table
from streaming.spark import Analysis
from streaming.tables import TaskFile, TaskFiles, delta

_WAITING_AT_MOST = 10_000
"""Rows that wait at a time: with so many no further ones are taken from the log."""

_STEP_WAITS = 1.0
"""Seconds for which a step waits for answers before it writes those that are there."""

_LOOK_EVERY, _IDLE_FOR = 0.5, 5.0
"""Seconds between two looks at the log, and until the next step, while rows wait and none is answered."""

_OUTPUTS = ("", FAILED)
_AT_MOST = 100_000
_RowPlace = tuple[int, str]
"""The batch of a row, and its origin as text: no two rows have the same."""


@dataclass(frozen=True)
class Piece:
    """The rows of the log that a step takes: those up to `until`, of `batches`, which are none where rows only wait."""

    until: Place
    batches: Sequence[Batch]


class EnrichedAnalysis(Analysis[Enriched]):
    """An enrichment over its log, as Spark sees it."""

    @cached_property
    def rows(self) -> DataFrame:
        """No row, as it is selected to be asked about."""
        return select_rows(self.of, self.inputs[self.of.of.name])

    @cached_property
    def selected(self) -> pa.Schema:
        """The columns of the rows that it asks about."""
        return selected_schema(self.rows)


class EnrichedSteps:
    """The steps of one enrichment in one process, and its calls in flight from one step to the next."""

    def __init__(self, spark: SparkSession, lake: Lake, enriched: Enriched, now: Callable[[], datetime]) -> None:
        self._spark = spark
        self._lake = lake
        self._source = text_number((enriched.call,))
        in_lake = getattr(enriched.call, "in_lake", None)
        # Only who runs it knows where the tables of the lake are.
        self._enriched = enriched = enriched if in_lake is None else replace(enriched, call=in_lake(lake))
        self._now = now
        self._log = LogFiles(lake, enriched.of)
        columns = {enriched.of.name: self._log.columns()}
        self._selected = EnrichedAnalysis.once(spark, enriched, columns).selected
        self._check_types()
        self._schemas = table_schemas(enriched, self._selected)
        self._uris = {suffix: self._created(suffix) for suffix in self._schemas}
        self._cache = None if enriched.cache is None else Cache(interval(enriched.cache) // timedelta(microseconds=1))
        self._cleaner = StateCleaner()
        self._stands = {suffix: Reached.of(delta.open_table(uri)) for suffix, uri in self._uris.items()}
        self._at = max(self._stands.values(), key=lambda each: each.place).place
        self._waiting = Waiting(enriched, self._selected)
        # Its thread is the last to be begun: whatever fails before leaves none.
        self._calls = Calls(enriched, now)
        try:
            self._resume()
        except BaseException:
            self._calls.close()
            raise

    def next_piece(self) -> Piece | None:
        """The piece that the next step takes; None where nothing is new and no row waits.

        Where rows only wait it looks for an answer, or for news in the log, for a few seconds.
        """
        for _ in range(round(_IDLE_FOR / _LOOK_EVERY)):
            behind = batches_after(self._lake, self._enriched.of, self._at.through)
            until = taken(self._at, behind, max(0, _WAITING_AT_MOST - len(self._waiting)))
            if until != self._at:
                return Piece(until, [batch for batch in behind if batch.number <= until.last])
            if not len(self._waiting):
                return None
            unanswered = self._waiting.unanswered
            if not unanswered or await_any(unanswered, _LOOK_EVERY):
                break
        newest = head(self._lake, self._enriched.of)
        assert newest is not None
        return Piece(self._at, [newest])

    def step(self, piece: Piece) -> Written:
        """Ask for the rows of a piece, and write what is answered within a while, of these or of earlier ones.

        Raises:
            FencedError: another process has taken over.
        """
        count = rows_between(self._at, piece.until, piece.batches) if piece.until != self._at else 0
        if count:
            self._ask(self._read(self._at, piece.until, count))
        await_all(self._waiting.unanswered, _STEP_WAITS)
        rows, questions = self._waiting.take_answered()
        answers = [self._answer(each.answer, each.identity) for each in questions]
        repeated = [each for each in self._waiting.unanswered if each.is_to_repeat]
        if not answers and not repeated and piece.until == self._at:
            return Written(0, len(self._waiting))
        failures = sum(answer.kind is not None for answer in answers)
        written = self._commit(rows, answers, piece.until, failures)
        self._at = piece.until
        # An attempt is on record before the next one, so that a crash repeats none but the last.
        self._calls.ask(repeated)
        self._cleaner.after_step(self._uris[PENDING], utc_now())
        return Written(written, len(self._waiting), delta.size(self._uris[PENDING]), failures)

    def close(self) -> None:
        """Give up the calls in flight."""
        self._calls.close()

    def _check_types(self) -> None:
        """Let a call that knows of types refuse those of the columns that it is handed, before it is asked anything."""
        check = getattr(self._enriched.call, "check_types", None)
        if check is not None:
            names = self._enriched.key or tuple(self._enriched.types)
            try:
                check(pa.schema([self._selected.field(name) for name in names]))
            except DimensionError as error:
                raise DeclarationError(
                    f"enrichment {self._enriched.name!r} cannot ask: {error}. Nothing was asked, and nothing is lost."
                ) from error

    def _ask(self, rows: pa.Table) -> None:
        new, now = self._wait_for(rows), to_micros(self._now())
        for question in new:
            answer = None if self._cache is None else self._cache.get(question.identity, now)
            if answer is not None and question.answer is None:
                question.settle(answer)
        self._calls.ask([question for question in new if question.future is None])

    def _wait_for(self, rows: pa.Table, keys: Sequence[str] | None = None) -> list[Question]:
        """Let rows wait that have `_error` as well; those that cannot be asked for have failed with it."""
        new = self._waiting.add(rows.select(self._selected.names), keys, rows[ERROR].to_pylist())
        for question in new:
            if question.cannot_be_asked:
                question.fail(to_micros(self._now()))
        return new

    def _answer(self, answer: Answer | None, identity: Hashable) -> Answer:
        assert answer is not None
        if self._cache is not None and not answer.cached:
            self._cache.put(identity, answer)
        return answer

    def _commit(self, rows: pa.Table, answers: Sequence[Answer], until: Place, failures: int) -> int:
        step = max(each.step for each in self._stands.values()) + 1
        files = self._files(step)
        answered, pending = files.answered(rows, answers), files.pending(self._waiting)
        after = Reached(step, until)
        metadata = {
            "through": until.through,
            "after": self._at.through,
            "waiting": len(self._waiting),
            "failures": failures,
            "cached": sum(answer.cached for answer in answers),
            "most_in_flight": self._calls.most,
        }
        if answered[FAILED]:
            self._append(FAILED, answered[FAILED], metadata, after)
        # Where an attempt was in vain, only what waits is another.
        new = bool(answers) or until != self._at
        count = self._append("", answered[""], metadata, after) if new else 0
        self._append(PENDING, pending, metadata, after)
        return count

    def _append(self, suffix: str, files: Sequence[TaskFile], metadata: dict[str, int], after: Reached) -> int:
        before = self._stands[suffix]
        rows = delta.commit_files(
            self._uris[suffix],
            files,
            says=metadata,
            numbers={**after.numbers(), SOURCE: self._source},
            fence=lambda table: before.fence(self._enriched, table),
            mode="overwrite" if suffix == PENDING else "append",
        )
        self._stands[suffix] = after
        return rows

    def _resume(self) -> None:
        """Let those rows wait that are in the log, as far as it is taken, and in neither output."""
        stood = self._stands[PENDING]
        pending = delta.open_table(self._uris[PENDING])
        assert pending is not None
        rows = delta.contents(pending, columns=self._schemas[PENDING].names).cast(self._schemas[PENDING])
        attempts = dict(zip(_places_of(rows), rows[ATTEMPTS].to_pylist(), strict=True))
        # The error of an attempt is told, and the row asked for once more.
        unasked = pc.if_else(pc.equal(rows[ATTEMPTS], 0), rows[ERROR], None)
        self._wait_for(
            rows.select(self._selected.names).append_column(ERROR, unasked),
            rows[REQUEST].to_pylist(),
        )
        if stood.place != self._at:
            batches = batches_after(self._lake, self._enriched.of, stood.place.through)
            self._wait_for(self._read(stood.place, self._at, rows_between(stood.place, self._at, batches)))
        done = {
            place
            for suffix in _OUTPUTS
            if self._stands[suffix].step > stood.step
            for place in _places_of(self._written_after(suffix, stood.step))
        }
        self._waiting.drop(lambda place: place in done)
        for place, question in zip(_places_of(self._waiting.rows), self._waiting.questions, strict=True):
            question.attempts = max(question.attempts, attempts.get(place, 0))
        self._catch_up()
        self._calls.ask(self._waiting.unanswered)

    def _catch_up(self) -> None:
        """Where a step died between two of its commits, let the tables after the first say how far it came."""
        newest = Reached(max(each.step for each in self._stands.values()), self._at)
        for suffix in ("", PENDING):
            if self._stands[suffix].step < newest.step:
                files = self._files(newest.step).pending(self._waiting) if suffix == PENDING else []
                self._append(suffix, files, {"through": self._at.through, "waiting": len(self._waiting)}, newest)

    def _files(self, step: int) -> _StepFiles:
        return _StepFiles(self._enriched, self._uris, self._schemas, step, to_micros(self._now()))

    def _written_after(self, suffix: str, step: int) -> pa.Table:
        """Where the rows that later steps wrote are from, of the same types as those that wait."""
        rows = delta.read(self._spark, self._uris[suffix]).where(F.col(STEP_COLUMN) > step).select(BATCH, ORIGIN)
        return rows.toArrow().cast(pa.schema([self._selected.field(name) for name in (BATCH, ORIGIN)]))

    def _read(self, at: Place, until: Place, count: int) -> pa.Table:
        """The rows to ask for between two places, `count` in number, in the order of the log."""
        schema = self._selected.append(pa.field(ERROR, pa.string()))
        if not count:
            return schema.empty_table()
        rows = rows_to_ask_for(self._enriched, self._log.with_batches(self._spark, at.through, until.last))
        ordered = rows.coalesce(1).sortWithinPartitions(BATCH, ORIGIN)
        if at.row or until.row:
            ordered = ordered.offset(at.row).limit(count)
        return ordered.toArrow().cast(schema)

    def _created(self, suffix: str) -> str:
        schema = spark_schema(self._schemas[suffix], partitioned=suffix != PENDING)
        uri = create_table(self._lake, self._enriched, suffix, schema)
        # Where all columns are selected, one may have been added to the stream since.
        delta.widen(uri, schema)
        return uri


class Cache:
    """Answers are good for `kept_for` microseconds; the ones that were used least lately make room for others."""

    def __init__(self, kept_for: int, most: int = _AT_MOST) -> None:
        self._kept_for = kept_for
        self._most = most
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()

    def get(self, identity: Hashable, now: int) -> Answer | None:
        """The answer, as one from the cache; None where there is none that is good still."""
        answer = self._answers.get(identity)
        if answer is None:
            return None
        if now - answer.answered_at >= self._kept_for:
            del self._answers[identity]
            return None
        self._answers.move_to_end(identity)
        return replace(answer, cached=True)

    def put(self, identity: Hashable, answer: Answer) -> None:
        """Keep an answer; a failure is none."""
        if answer.kind is not None:
            return
        self._answers[identity] = answer
        self._answers.move_to_end(identity)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)


class _StepFiles:
    """Writes the files of one step into the folders of the tables at `uris`, by suffix."""

    def __init__(
        self, enriched: Enriched, uris: dict[str, str], schemas: dict[str, pa.Schema], step: int, now: int
    ) -> None:
        self._enriched = enriched
        self._uris = uris
        self._schemas = schemas
        self._default = encoder(pa.struct(list(enriched.answer_schema)))(enriched.default)
        self._same = {VERSION: enriched.version, STEP_COLUMN: step, WRITTEN_AT: now}

    def answered(self, rows: pa.Table, answers: Sequence[Answer]) -> dict[str, list[TaskFile]]:
        """The rows of a step that wait no more, by the suffix of the table that takes them."""
        aside = [answer.kind is not None and self._enriched.on_failure == "side" for answer in answers]
        failures = [answer for answer, out in zip(answers, aside, strict=True) if out]
        others = [answer for answer, out in zip(answers, aside, strict=True) if not out]
        mask = pa.array(aside, pa.bool_())
        return {
            "": self._write("", rows.filter(pc.invert(mask)), others),
            FAILED: self._write(FAILED, rows.filter(mask), failures),
        }

    def pending(self, waiting: Waiting) -> list[TaskFile]:
        """All rows that wait."""
        if not len(waiting):
            return []
        questions = waiting.questions
        columns: dict[str, list[Any]] = {
            ASKED_AT: [each.asked_at for each in questions],
            # Before the attempts, as a call that fails meanwhile must not look like one that could not be asked.
            ERROR: [each.error for each in questions],
            ATTEMPTS: [each.attempts for each in questions],
            REQUEST: [each.key for each in questions],
        }
        files = TaskFiles(self._uris[PENDING], self._schemas[PENDING])
        for batch in self._table(PENDING, waiting.rows, columns).to_batches():
            files.write(batch)
        return files.close()

    def _write(self, suffix: str, rows: pa.Table, answers: Sequence[Answer]) -> list[TaskFile]:
        if not answers:
            return []
        columns: dict[str, list[Any]] = {
            ASKED_AT: [each.asked_at for each in answers],
            ANSWERED_AT: [each.answered_at for each in answers],
            **(self._failures(answers) if suffix == FAILED else self._answers(answers)),
        }
        files = TaskFiles(self._uris[suffix], self._schemas[suffix], (AT, BATCH, STEP_COLUMN))
        for day, of_day in _by_day(self._table(suffix, rows, columns)):
            for batch in of_day.to_batches():
                files.write(batch, day)
        return files.close()

    def _answers(self, answers: Sequence[Answer]) -> dict[str, list[Any]]:
        values = [self._values(each) for each in answers]
        return {
            **{name: [each.get(name) for each in values] for name in self._enriched.result},
            ATTEMPT: [each.attempt for each in answers],
            CACHED: [each.cached for each in answers],
            ERROR: [each.error for each in answers],
        }

    def _values(self, answer: Answer) -> Any:
        if answer.values is not None:
            return answer.values
        takes_default = answer.kind is None or self._enriched.on_failure == "default"
        return self._default if takes_default else {}

    @staticmethod
    def _failures(answers: Sequence[Answer]) -> dict[str, list[Any]]:
        return {
            "kind": [each.kind for each in answers],
            "error": [each.error for each in answers],
            "attempts": [each.attempt for each in answers],
        }

    def _table(self, suffix: str, rows: pa.Table, columns: dict[str, list[Any]]) -> pa.Table:
        def column(field: pa.Field) -> Any:
            if field.name in columns:
                return pa.array(columns[field.name], field.type)
            if field.name in self._same and suffix != PENDING:
                return pa.repeat(pa.scalar(self._same[field.name], field.type), rows.num_rows)
            return rows[field.name].cast(field.type)

        schema = self._schemas[suffix]
        return pa.table([column(field) for field in schema], schema=schema)


def _by_day(rows: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    days = pc.cast(rows[AT], pa.date32(), safe=False)
    for day in pc.unique(days).to_pylist():
        yield day, rows.filter(pc.equal(days, day))


class Waiting:
    """Rows as they were selected, and the questions that they wait for: rows of one key share one."""

    def __init__(self, enriched: Enriched, schema: pa.Schema) -> None:
        self.rows: pa.Table = schema.empty_table()
        self.questions: list[Question] = []
        self._enriched = enriched
        self._asked = enriched.key or tuple(enriched.types)

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def unanswered(self) -> list[Question]:
        """Each question that has no answer yet, once."""
        return list({id(each): each for each in self.questions if each.answer is None}.values())

    def add(
        self, rows: pa.Table, keys: Sequence[str] | None = None, errors: Sequence[str | None] | None = None
    ) -> list[Question]:
        """Let further rows wait; returns the questions that are new.

        `keys` are those with which they were asked. `errors` say of each row why it cannot be asked for, or are None:
        such a row shares no question.
        """
        open_ = {each.identity: each for each in self.unanswered} if self._enriched.key else {}
        columns = [python_values(rows[name]) for name in self._asked]
        new: list[Question] = []
        rows = rows.cast(self.rows.schema)
        for number, (place, values) in enumerate(zip(_places_of(rows), zip(*columns, strict=True), strict=True)):
            error = None if errors is None else errors[number]
            shares = self._enriched.key and error is None
            identity = values if shares else place
            question = open_.get(identity) if shares else None
            if question is None:
                key = request_key(self._enriched, *place) if keys is None else keys[number]
                question = Question(identity, self._asked, values, key, error=error)
                new.append(question)
                if shares:
                    open_[identity] = question
            self.questions.append(question)
        self.rows = pa.concat_tables([self.rows, rows])
        return new

    def take_answered(self) -> tuple[pa.Table, list[Question]]:
        """Those rows that may come out now, which wait no more: in the order `arrival` none behind one that waits."""
        answered = [each.answer is not None for each in self.questions]
        if self._enriched.order == "arrival" and False in answered:
            first = answered.index(False)
            answered[first:] = [False] * (len(answered) - first)
        return self._take(answered)

    def drop(self, is_done: Callable[[_RowPlace], bool]) -> None:
        """Let the rows at some places wait no more."""
        self._take([is_done(place) for place in _places_of(self.rows)])

    def _take(self, wanted: Sequence[bool]) -> tuple[pa.Table, list[Question]]:
        mask = pa.array(wanted, pa.bool_())
        taken = [question for question, out in zip(self.questions, wanted, strict=True) if out]
        rows = self.rows.filter(mask)
        self.questions = [question for question, out in zip(self.questions, wanted, strict=True) if not out]
        self.rows = self.rows.filter(pc.invert(mask)).combine_chunks()
        return rows, taken


def _places_of(rows: pa.Table) -> list[_RowPlace]:
    """Where each row is from."""
    origins = rows[ORIGIN].to_pylist()
    return list(zip(rows[BATCH].to_pylist(), map(_text, origins), strict=True))


def _text(origin: Any) -> str:
    return json.dumps(origin, sort_keys=True, default=str)
