"""What a table is at one of its versions, in a small file beside that version's commit.

Readers take schema and protocol from there; without it Spark runs a job over the newest commits to find them, at every
new version that a stream or a query looks at. It is the optional version checksum of the Delta protocol.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import Any

from deltalake import DeltaTable

from streaming.tables.storage import replace_bytes


def write_checksum(table: DeltaTable) -> None:
    """Write the checksum of the version that is open, if it can be written: readers can do without it."""
    path = f"{table.table_uri.rstrip('/')}/_delta_log/{table.version():020}.crc"
    with suppress(OSError):
        replace_bytes(path, json.dumps(_checksum(table)).encode(), uuid.uuid4().hex)


def _checksum(table: DeltaTable) -> dict[str, Any]:
    sizes = table.get_add_actions()["size_bytes"].to_pylist()
    metadata, protocol = table.metadata(), table.protocol()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    return {
        "tableSizeBytes": sum(sizes),
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
            "createdTime": metadata.created_time,
        },
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{name: sorted(values) for name, values in features.items() if values is not None},
        },
    }
