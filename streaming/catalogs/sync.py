"""Differences between what the lake publishes and what a catalog has, and their settlement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from streaming.base import CatalogError, counted
from streaming.catalogs.catalog import Catalog
from streaming.catalogs.entries import LAKE, PIPELINE, CatalogColumn, TableEntry, lake_entries, lake_uri
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.tables import delta

Action = Literal["create", "change", "withdraw"]
_MOST_NAMED = 3


@dataclass(frozen=True)
class Change:
    """One thing to be done in a catalog.

    `entry` is the table as it is to be, or as it stands where it is withdrawn; `standing` the one to be changed; `why`
    what is not as it should be.
    """

    action: Action
    entry: TableEntry
    standing: TableEntry | None = None
    why: str = ""


@dataclass(frozen=True)
class Difference:
    """Everything to be done so that a catalog agrees with the lake; nothing where it does.

    `agreeing` counts the tables that are as they should be. `taken` are tables of others, of the lake or not, that
    have a name which the lake would need.
    """

    changes: tuple[Change, ...] = ()
    agreeing: int = 0
    taken: tuple[TableEntry, ...] = ()

    @property
    def agrees(self) -> bool:
        """True if there is nothing to be done, and no name is taken."""
        return not self.changes and not self.taken


def compare(
    catalog: Catalog, lake: Lake, pipelines: Sequence[Pipeline], schema: str | None = None, *, all_of_lake: bool = False
) -> Difference:
    """Hold what a catalog has against what the lake publishes of these pipelines.

    `schema` is one for all tables; without it each pipeline has one of its own name. With `all_of_lake` tables of other
    pipelines are looked at, too. They are gone once nothing lies in their place, or it has another name here: whoever
    declares them may be a module that is broken right now, or another project.

    Raises:
        CatalogError: the catalog is away or refuses, two tables of the lake would have one name in it, or it has tables
            of the lake, none of which lies there.
    """
    wanted = _by_name(entry for pipeline in pipelines for entry in lake_entries(lake, pipeline, schema)).values()
    uri = lake_uri(lake.root)
    schemas = [schema] if schema else [pipeline.name for pipeline in pipelines]
    schemas += catalog.schemas_of(uri) if all_of_lake else []
    standing = [entry for each in dict.fromkeys(schemas) for entry in catalog.tables(each).values()]
    if not wanted:
        _check_has_tables(catalog, uri, standing)
    names = {pipeline.name for pipeline in pipelines}
    others = (entry for entry in standing if entry.is_of(uri) and entry.properties.get(PIPELINE) not in names)
    held = [catalog.as_held(entry) for entry in wanted]
    # A pipeline that was renamed has the same places under other names.
    elsewhere = {entry.location for entry in held}
    gone = {str(each) for each in others if all_of_lake and (each.location in elsewhere or not _lies(each))}
    return difference(held, standing, uri, names, gone)


def _check_has_tables(catalog: Catalog, lake: str, standing: Sequence[TableEntry]) -> None:
    """Refuse to take a lake that is not mounted for one that has no tables any more.

    Raises:
        CatalogError: tables of the lake at this URI are in the catalog, and none of them lies there.
    """
    named = sum(entry.is_of(lake) for entry in standing)
    others = (entry for schema in catalog.schemas_of(lake) for entry in catalog.tables(schema).values())
    if not named or any(entry.is_of(lake) and _lies(entry) for entry in chain(standing, others)):
        return
    raise CatalogError(
        f"the lake {lake} has no table at all, and {catalog.address} has {counted(named, 'table')} of it; nothing was "
        "changed there",
        "correct TIDEMARK_HOME, or see that the lake is mounted, and run the command again; where its tables are gone "
        "for good, drop them in the catalog.",
        address=catalog.address,
        value=lake,
    )


def _lies(entry: TableEntry) -> bool:
    """True if there is a table where the entry says."""
    return delta.exists(entry.location.removeprefix("file://"))


def difference(
    wanted: Iterable[TableEntry],
    standing: Iterable[TableEntry],
    lake: str,
    pipelines: Collection[str],
    gone: Collection[str] = (),
) -> Difference:
    """The difference between the tables that are `wanted` and those `standing` in a catalog; pure.

    Tables that were registered from the `lake` at this URI for one of these `pipelines` are withdrawn if they are not
    wanted, and so are those whose names are `gone`. One that was registered for another pipeline from the very place
    that is wanted was renamed. No other table is ever touched.

    Raises:
        CatalogError: two of the wanted tables have one name.
    """
    by_name = _by_name(wanted)
    there = {str(entry): entry for entry in standing}

    def is_ours(entry: TableEntry) -> bool:
        return str(entry) in gone or any(entry.is_of(lake, name) for name in pipelines)

    created, changed, taken, agreeing = [], [], [], 0
    for name, entry in by_name.items():
        old = there.get(name)
        if old is None:
            created.append(Change("create", entry))
        elif not is_ours(old) and not (old.is_of(lake) and old.location == entry.location):
            taken.append(old)
        elif why := what_differs(entry, old):
            changed.append(Change("change", entry, old, why))
        else:
            agreeing += 1
    unwanted = (entry for name, entry in there.items() if name not in by_name and is_ours(entry))
    withdrawn = (Change("withdraw", entry, why="the lake does not have it") for entry in unwanted)
    # Two tables of one place at a time are more than some catalogs allow.
    return Difference((*withdrawn, *created, *changed), agreeing, tuple(taken))


def what_differs(entry: TableEntry, standing: TableEntry) -> str:
    """Names for people of what a table in a catalog does not have as it should; empty where all is as it should be."""
    parts = [name for name in ("location", "comment", "owner") if getattr(entry, name) != getattr(standing, name)]
    own, old = entry.own_properties, standing.own_properties
    parts += [name for name in sorted({*own, *old}) if own.get(name) != old.get(name)]
    columns = _differing_columns(entry.columns, standing.columns)
    named = ", ".join(columns[:_MOST_NAMED]) + (", ..." if len(columns) > _MOST_NAMED else "")
    parts += [f"{'column' if len(columns) == 1 else 'columns'} {named}"] if columns else []
    return ", ".join(parts)


def _differing_columns(columns: Sequence[CatalogColumn], standing: Sequence[CatalogColumn]) -> list[str]:
    now, old = ({column.name: column for column in each} for each in (columns, standing))
    names = [name for name in (*now, *(each for each in old if each not in now)) if now.get(name) != old.get(name)]
    return names or ([] if [*now] == [*old] else [*now])


def _by_name(entries: Iterable[TableEntry]) -> dict[str, TableEntry]:
    listed = [*entries]
    for name, times in Counter(map(str, listed)).items():
        if times > 1:
            places = " and ".join(repr(entry.location) for entry in listed if str(entry) == name)
            raise CatalogError(
                f"{places} would both be {name!r} in the catalog, and nothing was changed there",
                "unset TIDEMARK_CATALOG_SCHEMA, so that each pipeline has a schema of its own, or rename one of them.",
                value=name,
            )
    return {str(entry): entry for entry in listed}


def apply_difference(
    catalog: Catalog, lake: Lake, found: Difference, tell: Callable[[Change], None] = lambda change: None
) -> None:
    """Do in a catalog what there is to be done, one table after the other; `tell` is told what is done by then.

    Whoever runs it again after an error goes on with what is left.

    Raises:
        CatalogError: a name is taken, so that nothing was done; or the catalog is away or refuses, so that what was
            told is done and nothing else.
    """
    if found.taken:
        names = ", ".join(catalog.full_name(entry) for entry in found.taken)
        raise CatalogError(
            f"{names} in {catalog.address} was not registered from this lake, and nothing was changed there",
            "rename or drop it there, or set TIDEMARK_CATALOG_SCHEMA to a schema of your own.",
            address=catalog.address,
            value=names,
        )
    properties = {LAKE: lake_uri(lake.root)}
    made: set[str] = set()
    for change in found.changes:
        match change:
            case Change("create", entry):
                if entry.schema not in made:
                    catalog.create_schema(entry.schema, properties)
                    made.add(entry.schema)
                catalog.create(entry)
            case Change("change", entry, TableEntry() as standing):
                catalog.change(entry, standing)
            case Change("withdraw", entry):
                catalog.withdraw(entry)
        tell(change)
