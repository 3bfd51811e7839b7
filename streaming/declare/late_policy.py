"""The policies for late pairs, and for when results appear: checked here, followed elsewhere."""

from __future__ import annotations

from typing import Literal

from streaming.base import DeclarationError, interval

LatePolicy = Literal["correct", "update", "drop"]
"""`correct`: late pairs wait for the scheduled correction. `update`: those whose window ended less than the allowed
lateness before the stamp are corrected by the stream process itself, right after the batch that brought them, or, where
they are part of a session that is still open, once it is closed; later ones wait for the schedule. `drop`: they change
no result, and are still in the log, counted and readable."""

EACH_BATCH = "each batch"


def check_policy(view: str, late: str, allowed_lateness: str | None, early: str | None) -> None:
    """Refuse what cannot be followed.

    Raises:
        DeclarationError: a lateness without its policy or the reverse.
    """
    if (late == "update") != (allowed_lateness is not None):
        raise DeclarationError(
            f"view {view!r} has late={late!r} and allowed_lateness={allowed_lateness!r}; late='update' needs an "
            "allowed lateness, such as '5 seconds', and the other policies have none.",
            operator=view,
            field="late",
            value=late,
        )
    if allowed_lateness is not None:
        interval(allowed_lateness)
    if early not in (None, EACH_BATCH):
        interval(early)
