"""A dbt project behind a view, as an asset of Dagster: each run restates the days that changed, and no others."""

# Not with postponed annotations: dagster reads those of resources and assets when they are declared.
import json
import subprocess
from typing import Any

import dagster as dg

import tidemark


class Dbt(dg.ConfigurableResource):
    """The command `dbt`, and the folder of a project that has its profile, too."""

    command: str = "dbt"
    project: str

    def run(self, variables: dict[str, Any]) -> None:
        """Build the models of the project, with the values of `var(...)` in them."""
        command = [self.command, "run", "--profiles-dir", ".", "--vars", json.dumps(variables)]
        subprocess.run(command, cwd=self.project, check=True)


@dg.asset(deps=[dg.AssetKey(["orders", "orders_by_hour_current"])])
def revenue_by_day(
    context: dg.AssetExecutionContext, lake: tidemark.LakeResource, dbt: Dbt
) -> dg.MaterializeResult[None]:
    """Revenue of each day; its metadata say up to which revision of the hours it is."""
    last = context.instance.get_latest_materialization_event(context.asset_key)
    known = last.asset_materialization if last is not None else None
    since = -1 if known is None else int(str(known.metadata["revision"].value))
    changed = lake.changed("orders", "orders_by_hour", since=since)
    dbt.run({"changed": {changed.operator: changed.document()}})
    days = [str(part["_day"]) for part in changed.parts.to_pylist()]
    return dg.MaterializeResult(metadata={"revision": changed.revision, "days": days})
