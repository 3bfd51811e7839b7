"""Current results of an operator, and every change of them, as tables for everybody."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.changes.looks import ChangePosition, Look, look_at
    from streaming.changes.manifest import Manifest, note_together
    from streaming.changes.publishing import Publishing, publish

make_front(__name__)
