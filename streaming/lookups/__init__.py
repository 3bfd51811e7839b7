"""Enrichment: calls to somewhere else, whose answers are a log of their own and are never asked for again."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.lookups.dimension import DimensionLookup
    from streaming.lookups.postgres import BlockingPostgresLookup, PostgresLookup
    from streaming.lookups.tables import STEP, select_rows

make_front(__name__)
