"""Servers of catalogs: a real Hive metastore, and recorded contracts of two of which no server is started.

The metastore runs from the jars that Spark brings, with a database in memory. Of Unity Catalog and of Apache Polaris
there is the part of the public OpenAPI document that is asked for here, as strict as it says: fields that it does not
have, values that it does not list, and names that the server refuses are errors.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyspark

from platform_assets.demo.feeds import free_port
from streaming.spark import java

TOKEN = "open-sesame"
PAGE = 2
"""Entries of a page of the recorded servers: few, so that every list has several."""

_STARTS_WITHIN, _ENDS_WITHIN = 90.0, 20.0
_SITE = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
}


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """A Hive metastore whose databases lie in `folder`; its address.

    Raises:
        OSError: there is no Java, or it does not start.
    """
    port = free_port()
    properties = {**_SITE, "hive.metastore.warehouse.dir": f"file://{folder}/warehouse"}
    written = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items())
    (folder / "hive-site.xml").write_text(f"<configuration>{written}</configuration>")
    log = folder / "metastore.log"
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        java.java_launcher() or "java",
        *("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dderby.stream.error.file={folder}/derby.log"),
        *("-cp", f"{folder}:{jars}/*", "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=folder, env=environment, start_new_session=True
        )
    try:
        _wait_for(port, process, log)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        # Between two looks at a port there is nothing to be waited for but time.
        threading.Event().wait(0.1)
    raise OSError(f"the Hive metastore does not answer; its log ends with:\n{log.read_text()[-2000:]}")


Answer = tuple[int, Mapping[str, Any] | None]
Query = Mapping[str, str]


@dataclass
class Recorded:
    """A recorded server: its address, the requests that it got, and those of which the next one is to fail."""

    url: str = ""
    requests: list[str] = field(default_factory=list)
    failing: Callable[[str], bool] = lambda request: False

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """The answer to a request that bears the token."""
        raise NotImplementedError

    def refusal(self, status: int, code: str, message: str) -> Answer:
        """The body of an error."""
        raise NotImplementedError


@contextmanager
def serving(server: Recorded) -> Iterator[Recorded]:
    """A recorded server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer in two packets is held back for 40 ms by the other side.
        wbufsize = -1

        def _any(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = f"{self.command} {parts.path}"
            server.requests.append(request)
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, answer = server.refusal(401, "UNAUTHENTICATED", "who are you?")
            elif server.failing(request):
                status, answer = server.refusal(500, "INTERNAL", "the disk is full")
            else:
                body = json.loads(content) if content else None
                status, answer = server.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            sent = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _any

        def log_message(self, *_: object) -> None:
            """Silence."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


def _page(entries: list[Any], token: str | None) -> tuple[list[Any], str]:
    start = int(token or 0)
    following = start + PAGE
    return entries[start:following], str(following) if following < len(entries) else ""


_UNITY_TABLE = {
    *("name", "catalog_name", "schema_name", "table_type", "data_source_format", "columns", "storage_location"),
    *("comment", "properties"),
}
_UNITY_COLUMN = {
    *("name", "type_text", "type_json", "type_name", "type_precision", "type_scale", "type_interval_type", "position"),
    *("comment", "nullable", "partition_index"),
}
_UNITY_TYPES = {
    *("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING"),
    *("BINARY", "DECIMAL", "INTERVAL", "ARRAY", "STRUCT", "MAP", "VARIANT", "CHAR", "NULL"),
}


@dataclass
class RecordedUnity(Recorded):
    """Catalogs, schemas and tables of `api/all.yaml` of Unity Catalog 0.4; it has one catalog, `main`.

    `conflict` is the status for what is there already: of earlier versions 409.
    """

    conflict: int = 400
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    def refusal(self, status: int, code: str, message: str) -> Answer:
        """As the server's handler of errors writes it."""
        details = [{"@type": "google.rpc.ErrorInfo", "reason": code}]
        return status, {"error_code": code, "message": message, "details": details}

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """One of the paths that are recorded."""
        below = path.removeprefix("/api/2.1/unity-catalog/")
        what, _, name = below.partition("/")
        match method, what, unquote(name):
            case "GET", "catalogs", "main":
                return 200, {"name": "main"}
            case "POST", "schemas", "":
                return self._made("Schema", self.schemas, body, {"name", "catalog_name", "comment", "properties"})
            case "GET", "schemas", "":
                return self._listed("schemas", self.schemas, f"{query['catalog_name']}.", query)
            case "POST", "tables", "":
                return self._make_table(body)
            case "GET", "tables", "":
                schema = f"{query['catalog_name']}.{query['schema_name']}"
                if schema not in self.schemas:
                    return self.refusal(404, "NOT_FOUND", f"Schema not found: {schema}")
                return self._listed("tables", self.tables, f"{schema}.", query)
            case "DELETE", "tables", full_name if full_name in self.tables:
                del self.tables[full_name]
                return 200, None
        return self.refusal(404, "NOT_FOUND", f"not found: {method} {path}")

    def _listed(self, what: str, entries: Mapping[str, Any], prefix: str, query: Query) -> Answer:
        assert int(query["max_results"]) <= 50
        entries_below = [entry for name, entry in sorted(entries.items()) if name.startswith(prefix)]
        page, token = _page(entries_below, query.get("page_token"))
        return 200, {what: page, "next_page_token": token}

    def _make_table(self, body: dict[str, Any]) -> Answer:
        if f"{body['catalog_name']}.{body['schema_name']}" not in self.schemas:
            return self.refusal(404, "NOT_FOUND", f"Schema not found: {body['schema_name']}")
        if body["table_type"] != "EXTERNAL" or body["data_source_format"] != "DELTA":
            return self.refusal(400, "INVALID_ARGUMENT", "MANAGED table creation is not supported yet.")
        if not re.match(r"[a-z0-9]+://?", body.get("storage_location") or ""):
            return self.refusal(400, "INVALID_ARGUMENT", "Storage location is required for external table")
        for column in body["columns"]:
            of_json = json.loads(column["type_json"])
            if (
                {*column} - _UNITY_COLUMN
                or column["type_name"] not in _UNITY_TYPES
                or of_json["name"] != column["name"]
            ):
                return self.refusal(400, "INVALID_ARGUMENT", f"Invalid column: {column}")
        return self._made("Table", self.tables, body, _UNITY_TABLE)

    def _made(self, what: str, entries: dict[str, Any], body: dict[str, Any], fields: set[str]) -> Answer:
        if {*body} - fields or not re.fullmatch(r"[a-zA-Z0-9_@-]{1,255}", body["name"]):
            return self.refusal(400, "INVALID_ARGUMENT", f"Invalid {what}: {sorted(body)}")
        name = ".".join(body[part] for part in ("catalog_name", "schema_name", "name") if part in body)
        if name in entries:
            code = f"{what.upper()}_ALREADY_EXISTS" if self.conflict == 400 else "ALREADY_EXISTS"
            return self.refusal(self.conflict, code, f"{what} already exists: {name}")
        entries[name] = {**body, "owner": "whoever has the token", "created_at": 0}
        return 200, entries[name]


_GENERIC_TABLES = "/polaris/v1/{prefix}/namespaces/{namespace}/generic-tables"


@dataclass
class RecordedPolaris(Recorded):
    """Namespaces of Iceberg's REST API, and generic tables as Apache Polaris adds them; its warehouse is `main`.

    Without `offers_generic_tables` it is any other catalog of Iceberg's.
    """

    offers_generic_tables: bool = True
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    def refusal(self, status: int, code: str, message: str) -> Answer:
        """Iceberg's `IcebergErrorResponse`."""
        return status, {"error": {"message": message, "type": code, "code": status}}

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """One of the paths that are recorded."""
        parts = [unquote(part) for part in path.removeprefix("/api/catalog/").split("/")]
        match method, parts:
            case "GET", ["v1", "config"] if query.get("warehouse") == "main":
                offered = [f"GET {_GENERIC_TABLES}", f"POST {_GENERIC_TABLES}"] if self.offers_generic_tables else []
                endpoints = ["GET /v1/{prefix}/namespaces", *offered]
                return 200, {"defaults": {}, "overrides": {"prefix": "main-1"}, "endpoints": endpoints}
            case "GET", ["v1", "main-1", "namespaces"]:
                page, token = _page(sorted(self.namespaces), query.get("pageToken"))
                return 200, {"namespaces": [[name] for name in page], "next-page-token": token or None}
            case "GET", ["v1", "main-1", "namespaces", name] if name in self.namespaces:
                return 200, {"namespace": [name], "properties": self.namespaces[name]}
            case "POST", ["v1", "main-1", "namespaces"]:
                (name,) = body["namespace"]
                if name in self.namespaces:
                    return self.refusal(409, "AlreadyExistsException", f"Namespace already exists: {name}")
                self.namespaces[name] = body["properties"]
                return 200, body
            case _, ["polaris", "v1", "main-1", "namespaces", name, "generic-tables", *table]:
                if name not in self.namespaces:
                    return self.refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")
                return self._of_tables(method, name, table, query, body)
        return self.refusal(404, "NotFoundException", f"not found: {method} {path}")

    def _of_tables(self, method: str, namespace: str, table: list[str], query: Query, body: Any) -> Answer:
        match method, table:
            case "GET", []:
                names = sorted(name.partition(".")[2] for name in self.tables if name.startswith(f"{namespace}."))
                page, token = _page(names, query.get("pageToken"))
                identifiers = [{"namespace": [namespace], "name": name} for name in page]
                return 200, {"identifiers": identifiers, "next-page-token": token or None}
            case "POST", []:
                name = f"{namespace}.{body['name']}"
                if {*body} - {"name", "format", "base-location", "doc", "properties"} or not body["format"]:
                    return self.refusal(400, "BadRequestException", f"Malformed request: {sorted(body)}")
                if name in self.tables:
                    return self.refusal(409, "AlreadyExistsException", f"Table already exists: {name}")
                self.tables[name] = body
                return 200, {"table": body}
            case "GET", [name] if f"{namespace}.{name}" in self.tables:
                return 200, {"table": self.tables[f"{namespace}.{name}"]}
            case "DELETE", [name] if f"{namespace}.{name}" in self.tables:
                del self.tables[f"{namespace}.{name}"]
                return 204, None
        return self.refusal(404, "NoSuchTableException", f"Table does not exist: {namespace}.{table}")
