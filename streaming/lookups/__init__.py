"""Enrichment: calls to somewhere else, whose answers are a log of their own and are never asked for again."""

from streaming.lookups.dimension import DimensionLookup
from streaming.lookups.operator import EnrichedRuntime
from streaming.lookups.postgres import BlockingPostgresLookup, PostgresLookup
from streaming.lookups.tables import STEP, STEP_COLUMN
