"""The laws of the design, recomputed from a lake as it stands."""

from streaming.audit.deliveries import audit_deliveries, reconcile
from streaming.audit.laws import audit
