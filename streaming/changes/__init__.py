"""What is current of an operator, and what has changed of it, as tables for everybody."""

from streaming.changes.looks import NOTHING_CLOSED, ChangePosition, Look, look_at
from streaming.changes.publishing import CLOCK, COPY, SIGN, Publishing, publish
