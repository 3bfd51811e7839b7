"""A Dagster component, for projects that use `dg`: what is declared, named in a file `defs.yaml`."""

from __future__ import annotations

import dagster as dg

from platform_assets.pipeline.location import definitions


class PipelinesComponent(dg.Component, dg.Model, dg.Resolvable):
    """Assets, checks, jobs, sensors and schedules of declared pipelines and of the reports on them.

    `pipelines` are their names; all that the project declares if left out.
    """

    pipelines: list[str] | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of these pipelines, made as `tidemark.definitions` makes them.

        Raises:
            DeclarationError: a pipeline of that name is not declared.
        """
        return definitions(self.pipelines)
