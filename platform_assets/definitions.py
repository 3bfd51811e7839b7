"""The code location: everything Dagster knows, made from what is declared."""

import warnings

import dagster as dg

from platform_assets.pipeline.location import loadable_definitions
from platform_assets.resources import default_resources

# Versions are pinned, so that a beta parameter does not change under us.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

defs = dg.Definitions.merge(
    *loadable_definitions(),
    # One process, and so one JVM, per run: Dagster's own choice would be one per step.
    dg.Definitions(resources=default_resources(), executor=dg.in_process_executor),
)
