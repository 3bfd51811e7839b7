"""Erasures: the rows of a person leave a pipeline, with a proof."""

from streaming.operations.erasure.erasing import Erased, erase
from streaming.operations.erasure.person import Person
from streaming.operations.erasure.preview import ErasurePreview, preview_erasure
from streaming.operations.erasure.record import Erasure, Removed, erasures
