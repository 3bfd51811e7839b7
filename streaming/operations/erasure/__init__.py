"""Erasures: the rows of a person leave a pipeline, with a proof."""

from streaming.operations.erasure.erasing import Erased, ErasurePreview, erase, preview_erasure
from streaming.operations.erasure.record import Erasure, Removed, erasures
from streaming.operations.erasure.rows import Person
