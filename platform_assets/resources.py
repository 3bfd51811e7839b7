"""The resources of assets, checks and sensors: the lake and a Spark session that starts when it is first used."""

# Not with postponed annotations: dagster reads those of resources, assets and ops when they are declared.
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from platform_assets.keys import current_keys, table_key
from streaming import Changed, Lake, Rows, Settings, Why, changed, read, start_session, why
from streaming.base import ReadError
from streaming.declare import CURRENT, Operator, Pipeline, declared_pipelines

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

    def read(
        self,
        pipeline: str | Pipeline,
        operator: str | Operator | None = None,
        what: str = CURRENT,
        *,
        where: str | None = None,
        columns: Sequence[str] = (),
        as_of: str | int | None = None,
    ) -> Rows:
        """Rows of this lake, as `tidemark.read` gives them without Spark.

        Raises:
            DeclarationError: there is no such pipeline, operator, or `what`; the text lists those there are.
            ReadError: a column is not there, nothing is there yet, or only Spark can tell which rows these are.
        """
        return read(pipeline, operator, what, where=where, columns=columns, as_of=as_of, lake=self.lake)

    def changed(self, pipeline: str | Pipeline, operator: str | Operator | None = None, *, since: int = -1) -> Changed:
        """The days of this lake whose results differ from those at a revision, as `tidemark.changed` gives them.

        Raises:
            DeclarationError: there is no such pipeline or operator, or it only ever adds rows.
            ReadError: nothing is published yet, or nobody can tell any more what stood at that revision.
        """
        return changed(pipeline, operator, since=since, lake=self.lake)

    def why(
        self, pipeline: str | Pipeline, operator: str | Operator | None = None, key: Mapping[str, object] | None = None
    ) -> Why:
        """The rows behind one current result of this lake, as `tidemark.why` gives them.

        Raises:
            DeclarationError: there is no such pipeline or operator.
            ReadError: no result, or several, have this key.
            OperatorError: nobody can tell which rows made a result of this kind of operator.
        """
        return why(pipeline, operator, key, lake=self.lake)


_FORMS = {"pyarrow.lib": Rows.arrow, "pandas": Rows.pandas, "polars": Rows.polars}
"""The form in which an input comes, by the package of its type; of any other type it is `Rows`."""


class LakeIOManager(dg.ConfigurableIOManager):
    """Inputs of assets of one's own that are tables of the lake, known by their asset keys.

    An input comes as what it is annotated with: `pyarrow.Table`, `pandas.DataFrame`, `polars.DataFrame`, else `Rows`.
    Of an operator it has what is current; metadata of the input may say `what`, `where` and `columns` instead.
    """

    lake: dg.ResourceDependency[LakeResource]

    def load_input(self, context: dg.InputContext) -> Any:
        """The rows of the table that the input's asset key names.

        Raises:
            ReadError: the key is of no table of the lake, or only Spark can tell which rows these are.
        """
        asked = {"what": CURRENT, **(context.definition_metadata or {})}
        pipeline, operator = _operator_of(context.asset_key)
        rows = self.lake.read(pipeline, operator, **asked)
        type_ = context.dagster_type.typing_type
        module = getattr(type_, "__module__", "")
        form = next((form for package, form in _FORMS.items() if module.startswith(package)), None)
        return rows if form is None else form(rows)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Refuse to write: what is in the lake, pipelines have written.

        Raises:
            ReadError: an asset that returns something has this IO manager.
        """
        if obj is not None:
            raise ReadError(
                f"asset {context.asset_key.to_user_string()!r} returns a value, and this IO manager only reads.",
                "Let it store what it makes itself and return None, or give it an IO manager of its own.",
            )


def _keys_of(operator: Operator) -> tuple[dg.AssetKey, ...]:
    """The keys under which Dagster shows what is current of an operator, and its own table."""
    return tuple(dict.fromkeys((*current_keys(operator), table_key(operator))))


def _operator_of(key: dg.AssetKey) -> tuple[Pipeline, Operator]:
    every = [(pipeline, each) for pipeline in declared_pipelines().values() for each in pipeline.operators]
    found = next((pair for pair in every if key in _keys_of(pair[1])), None)
    if found is None:
        keys = dict.fromkeys(each.to_user_string() for _, of in every for each in _keys_of(of))
        raise ReadError(
            f"asset {key.to_user_string()!r} is of no operator of the lake.",
            f"These are: {', '.join(keys) or 'none'}.",
            value=key.to_user_string(),
            choices=tuple(keys),
        )
    return found


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
