"""The ailments that the doctor finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streaming.declare import Operator


@dataclass(frozen=True)
class Ailment:
    """One thing that is not as it should be.

    `kind` is its stable name, `subject` what has it. `means` says what it is and what becomes of it, `advice` what to
    do. `heal` puts it right and can do no harm; None where only somebody can decide. A `note` breaks nothing.
    """

    kind: str
    subject: str
    means: str
    advice: str
    heal: Callable[[], None] | None = field(default=None, compare=False)
    note: bool = False


def made_again(operator: Operator) -> str:
    """The remedy for a table of an operator that is lost, or holds what it should not."""
    if operator.never_rebuilt:
        return f"restore it from a backup: {operator.never_rebuilt}"
    return f"build it anew from the log with `tidemark rebuild {operator.name}`"
