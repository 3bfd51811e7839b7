"""The progress of each day's correction, in each log that its operator follows: the table of corrections records it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from streaming.base import CorrectionsFailed, FencedError, FunctionError, counted, optional_instant, to_micros
from streaming.declare import Operator
from streaming.operators.progress import Progress, first_number, generation_of
from streaming.spark import cause_in_words, function_errors

_THROUGH, _CLOCK = "corrected.{}.{}", "corrected_clock.{}"
_OLD_THROUGH = "corrected.{}"
"""The name that versions before 0.2 gave it in tables of views."""


@dataclass(frozen=True)
class PendingDay:
    """A day whose late pairs are newer than its correction.

    `late_pairs` counts all pairs of the day, `newest_batch` the latest batch that brought one, `through_batch` the
    batch up to which the stored correction goes (null where there is none).
    """

    day: date
    late_pairs: int
    newest_batch: int
    through_batch: int | None


@dataclass(frozen=True)
class Corrected:
    """The point to which a day is corrected: the batch of each stream's log, -1 for none, and the joint clock then."""

    through: Mapping[str, int]
    watermark: datetime | None

    @property
    def has_begun(self) -> bool:
        """True if the day was ever corrected."""
        return any(number >= 0 for number in self.through.values())

    @classmethod
    def of(cls, operator: Operator, day: date, table: DeltaTable | None) -> Corrected:
        """The point to which the day is corrected, as an open table of corrections records it."""
        text, streams = day.isoformat(), [stream.name for stream in operator.follows]
        old = [_OLD_THROUGH.format(text)] if len(streams) == 1 else []
        through = {name: first_number(table, _THROUGH.format(text, name), *old) for name in streams}
        return cls(
            {name: -1 if batch is None else batch for name, batch in through.items()},
            optional_instant(first_number(table, _CLOCK.format(text))),
        )

    def lacks(self, newest: Mapping[str, int]) -> str | None:
        """The stream of whose log it lacks most batches up to the `newest`; None where it lacks none."""
        lacking = {name: number - self.through[name] for name, number in newest.items()}
        most = max(lacking, key=lambda name: lacking[name], default=None)
        return most if most is not None and lacking[most] > 0 else None

    def pending(self, day: date, late_pairs: int, newest: Mapping[str, int]) -> PendingDay | None:
        """The day, if it lacks batches up to the `newest`, by the numbers of the log of which it lacks most."""
        behind = self.lacks(newest)
        if behind is None:
            return None
        through = self.through[behind]
        return PendingDay(day, late_pairs, newest[behind], None if through < 0 else through)


def corrected_numbers(day: date, at: Progress) -> dict[str, int]:
    """The numbers that the table keeps of a day that is corrected up to `at`."""
    through = {_THROUGH.format(day.isoformat(), name): number for name, number in at.through.items()}
    return through if at.watermark is None else through | {_CLOCK.format(day.isoformat()): to_micros(at.watermark)}


def each_day(
    operator: Operator, days: Iterable[date], correct: Callable[[date], int], on_day: Callable[[date, int], None]
) -> dict[date, int]:
    """Correct each of `days`, oldest first; returns the corrected results of each, which `on_day` is told, too.

    Raises:
        CorrectionsFailed: days for which something cannot be computed, once all others are corrected.
    """
    corrected: dict[date, int] = {}
    failed: dict[date, Exception] = {}
    for day in sorted(days):
        try:
            with function_errors():
                corrected[day] = correct(day)
        except (PySparkException, Py4JJavaError, FunctionError) as error:
            failed[day] = error
        else:
            on_day(day, corrected[day])
    if failed:
        reasons = "; ".join(
            f"{day}: {error if isinstance(error, FunctionError) else cause_in_words(error)}"
            for day, error in failed.items()
        )
        others = "1 other is" if len(corrected) == 1 else f"{len(corrected)} others are"
        raise CorrectionsFailed(
            f"{counted(len(failed), 'day')} of {operator.kind_name} {operator.name!r} cannot be corrected, {others}: "
            f"{reasons}. What was published of them stays as it was",
            f"correct the cause and run `tidemark correct {operator.folder}` again.",
            operator=operator.name,
            failed=failed,
            corrected=corrected,
        ) from next(iter(failed.values()))
    return corrected


def same_generation(operator: Operator, generation: int, table: DeltaTable) -> None:
    """The fence of corrections that were computed for a generation of the operator's tables.

    Raises:
        FencedError: the tables were built anew meanwhile.
    """
    if generation_of(table) != generation:
        raise FencedError(
            f"{operator.kind_name} {operator.name!r} was built anew while it was corrected, and what was computed "
            f"is of the old one; run `tidemark correct {operator.folder}` again."
        )
