"""Names of what is read and written, by OpenLineage's naming of datasets: a namespace, and a name in it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

_KEYS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs"}
"""Namespaces of object stores by the scheme of a URI: a name there is the key of an object, without a slash before."""
_PATHS = ("abfs", "abfss", "hdfs", "wasb", "wasbs", "http", "https")
"""Schemes that are their own namespace, in which a name is a path."""


@dataclass(frozen=True, order=True)
class Dataset:
    """A dataset of OpenLineage: two programs that mean one table or topic give it the same two texts."""

    namespace: str
    name: str


def dataset_at(location: str) -> Dataset | None:
    """The dataset at an absolute path or URI; None where the location is neither, or of a scheme without a naming.

    Users, passwords and queries of a URI are left out, but for the container of an Azure store, which is written as a
    user is.
    """
    if location.startswith("/"):
        return Dataset("file", location.rstrip("/") or "/")
    try:
        parts = urlsplit(location)
        path, host = parts.path.rstrip("/"), parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return None
    if parts.scheme == "file":
        return Dataset(f"file://{host}" if host else "file", path or "/")
    bucket = parts.netloc.rpartition("@")[2]
    if parts.scheme in _KEYS and bucket:
        return Dataset(f"{_KEYS[parts.scheme]}://{bucket}", path.lstrip("/") or "/")
    if parts.scheme in _PATHS and host:
        container = f"{parts.username}@" if parts.username and parts.scheme[:4] in ("abfs", "wasb") else ""
        return Dataset(f"{parts.scheme}://{container}{host}{port}", path or "/")
    return None


def topic_at(servers: str, topic: str) -> Dataset:
    """A topic of Kafka; the first of several bootstrap servers stands for all."""
    return Dataset(f"kafka://{servers.split(',')[0].strip()}", topic)
