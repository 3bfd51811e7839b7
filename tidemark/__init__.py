"""Everything that a project of one's own imports, under one name.

What a name stands for is imported when it is first used, so that `import tidemark` loads neither Spark nor Dagster. The
names are those of the stub beside this module, which tools read for their types.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_HOMES = {
    name.name: node.module or ""
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}
"""The module of each name."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("streaming.base").RELEASE
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemark' has no name {name!r}; it has: {', '.join(__all__)}.")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
