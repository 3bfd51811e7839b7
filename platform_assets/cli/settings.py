"""`tidemark settings`: what the code says, what the deployment says, and so what is in force."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from platform_assets.cli.context import AsJson, console
from platform_assets.cli.documents import SettingDocument, SettingsDocument
from platform_assets.cli.render import next_step
from streaming.base import host_of
from streaming.catalogs import CatalogSettings
from streaming.declare import declared_pipelines
from streaming.lake import SECRET, Settings, declared_parameters, find_project


@dataclass(frozen=True)
class Shown:
    """One line: a setting's name, what the code says, what is in force, and who has changed it, if anybody."""

    name: str
    in_code: str
    in_force: str
    by: str


def settings(as_json: AsJson = False) -> None:
    """Show what is in force here: the platform's settings, Spark's, and the parameters of the declared pipelines.

    The deployment wins over the code; what it has changed is marked.
    """
    # Parameters are known once the modules that declare them are imported.
    declared_pipelines()
    shown = [*_platform(), *_spark(), *_parameters()]
    if as_json:
        SettingsDocument(
            settings=[SettingDocument(name=s.name, in_code=s.in_code, in_force=s.in_force, by=s.by) for s in shown]
        ).print()
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("setting", "in the code", "in force", "set by"):
        table.add_column(name, overflow="fold")
    for each in shown:
        in_force = Text(each.in_force, "bold" if each.by else "")
        table.add_row(Text(each.name), Text(each.in_code), in_force, Text(each.by))
    console.print(table)
    next_step(
        console, "tidemark status", "tells how the pipelines stand; `tidemark restart` lets one take new settings."
    )


def _platform() -> Iterator[Shown]:
    project, in_force, catalog = find_project(), Settings(), CatalogSettings()
    for name, field in Settings.model_fields.items():
        variable = f"TIDEMARK_{name.upper()}"
        by = variable if variable in os.environ else ""
        if not by and project is not None and name in project.settings:
            by = "pyproject.toml"
        value = getattr(in_force, name)
        if name == "alerts_to" and value is not None:
            value = f"{host_of(value)}/..."
        yield Shown(name, _text(field.default), _text(value), by)
    for name, field in CatalogSettings.model_fields.items():
        variable = str(field.validation_alias or f"TIDEMARK_CATALOG_{name.upper()}")
        value = getattr(catalog, name)
        if value is not None and name in ("token", "url"):
            value = "(not shown)" if name == "token" else host_of(value)
        shown = variable.removeprefix("TIDEMARK_").lower()
        yield Shown(shown, _text(field.default), _text(value), variable if os.environ.get(variable) else "")


def _spark() -> Iterator[Shown]:
    for key, value in sorted(Settings().spark_overrides().items()):
        yield Shown(key, "", "(not shown)" if SECRET.search(key) else value, "TIDEMARK_SPARK_* or the conf file")


def _parameters() -> Iterator[Shown]:
    for each in declared_parameters().values():
        in_force = each.default if each.given is None else each.given
        yield Shown(each.name, _text(each.default), _text(in_force), "" if each.given is None else each.variable)


def _text(value: object) -> str:
    return "" if value is None else str(value)
