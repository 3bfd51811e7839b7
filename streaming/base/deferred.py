"""PySpark's functions `F` and types `T`, imported when one of them is first used.

Modules that declarations stand on name them from here, so that what only reads a declaration does not wait for PySpark.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Deferred(ModuleType):
    """A module that is imported when one of its names is asked for; pickles name the module itself."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return dir(import_module(self.__name__))


if TYPE_CHECKING:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    F, T = _Deferred("pyspark.sql.functions"), _Deferred("pyspark.sql.types")
