"""SQL queries that are kept right by keys: analysed, rewritten to the keys that changed rows touch, and to those alone."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sql.query import GLOBAL, Query

make_front(__name__)
