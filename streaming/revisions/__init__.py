"""Streams whose rows have a key: what came becomes rows that are added and taken back, and rows that stand."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.revisions.extracts import without_row
    from streaming.revisions.fold import SEQUENCE
    from streaming.revisions.history import intervals_again, intervals_of, refused_extracts
    from streaming.revisions.laws import audit_revisions, newest_revisions
    from streaming.revisions.steps import (
        Revising,
        followed_by,
        identity_of_revision,
        net,
        of_revisions,
        sequence_of,
        standing_rows,
    )

make_front(__name__)
