"""The resources of assets, checks and sensors: the lake and a Spark session that starts when it is first used."""

# Not with postponed annotations: dagster reads those of resources, assets and ops when they are declared.
import multiprocessing
import os
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from streaming import Lake, Settings, start_session

_NICENESS = 5
"""At this one a run has a third of the processor time that a stream has, where there is not enough for both."""


class LakeResource(dg.ConfigurableResource):
    """The lake at `home`, or where `TIDEMARK_HOME` says; the environment is read when a run needs it."""

    home: str | None = Field(default=None, description="Root of the lake; without it, TIDEMARK_HOME decides.")

    @property
    def settings(self) -> Settings:
        """The platform's settings, with this `home`."""
        return Settings() if self.home is None else Settings(home=self.home)

    @property
    def lake(self) -> Lake:
        """Where every table is."""
        return self.settings.lake


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy session, started by the platform's one session factory.

    A process has one session, which all steps share and which nobody stops: it ends with the run's process. In the
    tests, and in the demo, it outlives the run.

    A run that Dagster has launched in a process of its own gives way to the streams on its machine, which ask for no
    session here: corrections, drains, gates and maintenance can wait for a stream that recovers or is behind, not the
    other way round.
    """

    lake: dg.ResourceDependency[LakeResource]
    spark_config: dict[str, Any] = Field(default={}, description="Spark SQL settings on top of the factory's.")

    def _init_session(self) -> None:
        if self._spark_session is None:
            give_way()
            self._spark_session = start_session(self.lake.settings)
            for key, value in self.spark_config.items():
                self._spark_session.conf.set(key, value)


def give_way() -> None:
    """Lower the priority of this process, and so of the JVM that it starts, if Dagster launched it for one run."""
    if multiprocessing.parent_process() is not None:
        os.nice(_NICENESS)


def default_resources(home: str | None = None) -> dict[str, Any]:
    """The resources of the code location, by the names that assets and sensors ask for."""
    lake = LakeResource(home=home)
    return {"lake": lake, "spark": SparkResource(lake=lake)}
