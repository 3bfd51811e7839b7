"""The project that a command runs in: the nearest folder upwards whose `pyproject.toml` has a `[tool.tidemark]`."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from streaming.base import SettingsError

_KEYS = {"lake": "home", "pipelines": "pipelines", "suites": "suites", "reports": "reports"}
"""The keys of the table `[tool.tidemark]`, each with the setting that it is."""


@dataclass(frozen=True)
class Project:
    """Where a project lies, and what its `[tool.tidemark]` says, by the names of the settings."""

    folder: Path
    settings: dict[str, str]


def find_project(folder: Path | None = None) -> Project | None:
    """The project around `folder`; None where there is none. By default that of the current folder, or what
    `TIDEMARK_PROJECT` says, which processes in other folders are given.

    A relative lake lies in the project, wherever a command is typed.

    Raises:
        SettingsError: the file cannot be read, or the table says what nobody understands.
    """
    here = Path(folder or os.environ.get("TIDEMARK_PROJECT") or Path.cwd()).resolve()
    for candidate in (here, *here.parents):
        file = candidate / "pyproject.toml"
        if file.is_file() and (table := _table(file)) is not None:
            return Project(candidate, {_KEYS[name]: _value(file, name, value) for name, value in table.items()})
    return None


def make_importable(project: Project | None) -> None:
    """Let Python find the packages in a project's folder: a command that is installed does not look there."""
    if project is not None and str(project.folder) not in sys.path:
        sys.path.append(str(project.folder))


def _table(file: Path) -> dict[str, object] | None:
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{str(file)!r} cannot be read: {error}.", "Correct it.", value=str(file)) from error
    table = tool.get("tidemark") if isinstance(tool, dict) else None
    if table is None:
        return None
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SettingsError(
            f"[tool.tidemark] in {str(file)!r} has {', '.join(map(repr, unknown))}, which is nothing; it may have: "
            f"{', '.join(_KEYS)}.",
            choices=tuple(_KEYS),
        )
    return dict(table)


def _value(file: Path, name: str, value: object) -> str:
    if name == "lake" and isinstance(value, str):
        return value if "://" in value else str(file.parent / Path(value).expanduser())
    names = [value] if isinstance(value, str) else value
    if name == "lake" or not isinstance(names, Iterable) or not all(isinstance(each, str) for each in names):
        wanted = "a path or URI" if name == "lake" else 'a list of packages, such as ["acme.pipelines"]'
        raise SettingsError(f"{name} = {value!r} in [tool.tidemark] of {str(file)!r} must be {wanted}", "correct it.")
    return ",".join(map(str, names))
