"""Relations of the lake for models of SQLMesh over DuckDB."""

import os

from deltalake import DeltaTable
from sqlmesh import macro
from sqlmesh.core.macros import MacroEvaluator


@macro()
def current(evaluator: MacroEvaluator, pipeline: str, operator: str) -> str:
    """Read `<operator>_current`: the files that it has when a model is built."""
    table = DeltaTable(f"{os.environ['TIDEMARK_HOME']}/{pipeline}/{operator}_current")
    files = ", ".join(f"'{path}'" for path in table.file_uris())
    return f"read_parquet([{files}], hive_partitioning = true)"
