"""A project of one's own, written from the templates beside this module."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from streaming.base import DeclarationError, check_name

_SUFFIX = ".template"
_NAMES = {"gitignore": ".gitignore"}
"""Files that would mean something where the templates lie, and so have another name there."""


def write_project(folder: Path, package: str) -> list[Path]:
    """Write a project whose package is `package` into `folder`, which is new or empty; returns its files.

    Raises:
        DeclarationError: the name is no name of a package, or there is something in the folder; nothing is written.
    """
    check_name("package", package)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeclarationError(
            f"{str(folder)!r} is there already and not empty", "choose another folder with --folder.", value=str(folder)
        )
    root = files(__package__) / "project"
    return sorted(_written(root, folder, package))


def _written(templates: Traversable, folder: Path, package: str) -> list[Path]:
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for entry in templates.iterdir():
        name = package if entry.name == "package" else entry.name.removesuffix(_SUFFIX)
        target = folder / _NAMES.get(name, name)
        if entry.is_dir():
            paths += _written(entry, target, package)
        elif entry.name.endswith(_SUFFIX):
            target.write_text(Template(entry.read_text(encoding="utf-8")).substitute(package=package), encoding="utf-8")
            paths.append(target)
    return paths
