"""Chance that can be replayed: numbers that follow from what they are for."""

from __future__ import annotations

from hashlib import blake2b
from math import cos, log, pi, sqrt

_WORD = 8


def noise(*seed: object) -> float:
    """A draw of the normal distribution with mean 0 and deviation 1 that follows from `seed` alone, on any machine.

    By the transform of Box and Muller, of two uniform numbers that are a hash of the text of `seed`.
    """
    digest = blake2b(repr(seed).encode(), digest_size=2 * _WORD).digest()
    first, second = (int.from_bytes(digest[start : start + _WORD], "big") for start in (0, _WORD))
    # Above 0, because 0 has no logarithm.
    return sqrt(-2 * log((first + 1) / 2**64)) * cos(2 * pi * second / 2**64)
