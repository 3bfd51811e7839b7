"""Ailments of a lake besides its numbers, which the audit checks: named, explained, healed where that is safe."""

from streaming.operations.doctor.ailment import Ailment
from streaming.operations.doctor.examination import examine, heal
