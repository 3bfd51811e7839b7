"""Derived streams without state: rows of logs that are projected, filtered, exploded, split and brought together."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.selected.operator import selected_again, selected_rows

make_front(__name__)
