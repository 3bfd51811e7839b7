"""Current results of an operator, and every change of them, as tables for everybody."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.changes.looks import ChangePosition, Look, LookAtSigned, look_at
    from streaming.changes.publishing import Publishing, differences, first_revision, publish, revision_of
    from streaming.changes.together import Together, note_together

make_front(__name__)
