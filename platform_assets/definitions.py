"""The code location: everything Dagster knows, made from what is declared."""

from platform_assets.pipeline.location import definitions

defs = definitions()
