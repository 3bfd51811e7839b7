"""The laws of the design, recomputed from a lake as it stands."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.audit.deliveries import audit_deliveries, reconcile
    from streaming.audit.laws import audit

make_front(__name__)
