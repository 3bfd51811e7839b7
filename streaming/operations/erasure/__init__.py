"""Erasures: the rows of a person leave a pipeline, with a proof."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.operations.erasure.erasing import Erased, ErasurePreview, erase, preview_erasure
    from streaming.operations.erasure.record import Erasure, erasures
    from streaming.operations.erasure.rows import Person

make_front(__name__)
