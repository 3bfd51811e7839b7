"""Columns of a keyed function's state beside its keys and fields."""

HASH = "_hash"
"""A hash of the keys, a whole number of 64 bits, by which the state is cut into buckets."""

TIMERS, DUE = "_timers", "_due"
"""The timers that are pending by name, and the time of the first."""
