"""The catalog of other engines as a check: does it agree with the lake on the tables of a pipeline."""

# Not with postponed annotations: dagster reads those of checks when they are declared.
from collections.abc import Sequence

import dagster as dg

from platform_assets import keys
from platform_assets.resources import LakeResource
from streaming import Pipeline
from streaming.base import CatalogError, MissingExtra, SettingsError, counted
from streaming.catalogs import CatalogSettings, Difference, compare, open_catalog

CHECK = "catalog_agrees"
_MEANING = (
    "The catalog that TIDEMARK_CATALOG_KIND names has the pipeline's tables as they are in the lake: places, columns, "
    "comments, keys, owner. `tidemark catalog sync` makes it so."
)


def catalog_checks(pipeline: Pipeline) -> Sequence[dg.AssetChecksDefinition]:
    """One check of a pipeline, on the log of its first stream, where a catalog is set; none where there is none."""
    if CatalogSettings().kind is None:
        return ()
    key = keys.log_key(pipeline.stream)

    @dg.multi_asset_check(
        name=keys.dagster_name("catalog", pipeline.name),
        specs=[dg.AssetCheckSpec(CHECK, asset=key, description=_MEANING)],
    )
    def check(lake: LakeResource) -> dg.AssetCheckResult:
        settings = CatalogSettings()
        try:
            with open_catalog(settings) as catalog:
                found = compare(catalog, lake.lake, [pipeline], settings.schema_name)
                return _result(key, pipeline, found, catalog.address)
        except (CatalogError, MissingExtra, SettingsError) as error:
            return dg.AssetCheckResult(
                asset_key=key,
                check_name=CHECK,
                passed=False,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"could not run: {error}",
            )

    return (check,)


def _result(key: dg.AssetKey, pipeline: Pipeline, found: Difference, address: str) -> dg.AssetCheckResult:
    differing = [
        f"{change.action} {change.entry}{f' ({change.why})' if change.why else ''}" for change in found.changes
    ]
    differing += [f"{entry} is somebody else's" for entry in found.taken]
    text = "; ".join(differing)
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECK,
        passed=found.agrees,
        # Rows are right whatever a catalog says of them.
        severity=dg.AssetCheckSeverity.WARN,
        description=(
            f"{counted(found.agreeing, 'table')} in {address} as in the lake"
            if found.agrees
            else f"not as in the lake: {text}; run `tidemark catalog sync {pipeline.name}`"
        ),
        metadata={"catalog": address, "agreeing": found.agreeing, "differing": len(differing)},
    )
