"""Every error the quality room raises on purpose; all of them say what was given and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from streaming.base import TidemarkError

Why = Literal["missing", "stale", "failed", "could_not_run", "uncorrected", "moved"]


class QualityError(TidemarkError):
    """Base of all errors of the quality room."""

    code = "quality"


class SuiteError(QualityError):
    """A suite was declared with something that cannot work."""

    code = "quality.suite"


@dataclass(frozen=True)
class Reason:
    """Why a gate is closed.

    `why`: `missing` (no verdict at all), `stale` (verdicts of other versions or of another definition only), `failed`,
    `could_not_run`, `uncorrected` (late pairs without a correction) or `moved` (a table was corrected or rebuilt after
    it was pinned); the last two have no expectation. `text` is one line for people.
    """

    why: Why
    table: str
    version: int | None
    expectation: str | None
    observed: str | None
    text: str


class GateClosed(QualityError):
    """The gate refuses to let a report out; the first line of the text is the first of `reasons`."""

    code = "quality.gate-closed"

    def __init__(self, reasons: Sequence[Reason], way_out: str) -> None:
        first, *others = (reason.text for reason in reasons)
        super().__init__("\n".join([f"gate closed: {first}", *(f"  also: {text}" for text in others), way_out]))
        self.reasons = tuple(reasons)
        self.next_step = way_out
