"""SQL queries kept right key by key: analysed, and rewritten to the keys that changed rows touch."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sql import functions
    from streaming.sql.affected import Place
    from streaming.sql.distances import Distance, Equality
    from streaming.sql.files import QueryFile
    from streaming.sql.query import GLOBAL, Query
    from streaming.sql.resolution import relations_in

make_front(__name__)
