"""PySpark's functions `F` and types `T`, and Arrow's functions `pc`, imported when one of them is first used.

Modules that declarations and reads stand on name them from here, so that what computes nothing does not wait for them.
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
    from pyarrow import compute as pc
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    F, T = _Deferred("pyspark.sql.functions"), _Deferred("pyspark.sql.types")
    pc = _Deferred("pyarrow.compute")
