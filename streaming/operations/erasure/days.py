"""Results of days of which a log has dropped the rows: nothing computes them without a person any more."""

from __future__ import annotations

from streaming.base import ErasureError
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.erasure.found import can_be_kept
from streaming.operations.erasure.person import Person
from streaming.operators import whole_since


def check_days(lake: Lake, pipeline: Pipeline, person: Person, keep_numbers: bool) -> None:
    """Refuse an erasure that would have to compute results again of which rows were dropped.

    Raises:
        ErasureError: with what can be done instead.
    """
    for operator in pipeline.operators:
        since, keeps = whole_since(lake, operator), can_be_kept(lake, operator, person)
        if since is None or (keep_numbers and keeps):
            continue
        kept = ", or keep its numbers with --keep-numbers" if keeps else ""
        raise ErasureError(
            f"{operator.kind_name} {operator.name!r} has results of rows of days before {since}, which were dropped by "
            "the retention of what it reads, so they cannot be computed again without the person. Leave it out of the "
            f"pipeline's declaration and remove it with `tidemark drop {operator.name}`{kept}. Nothing was erased."
        )
