"""A schema registry over HTTP that knows the schemas it was given, by their ids, and registers no others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def registry(
    schemas: Mapping[int, str],
    of: str | None = None,
    references: Mapping[int, Sequence[Mapping[str, object]]] | None = None,
    subjects: Mapping[tuple[str, int], str] | None = None,
) -> Iterator[str]:
    """Its URL, while it answers; the schemas are of Avro, or `of` another type.

    `references` are those of a schema to others, which `subjects` have by their subject and version.
    """
    schema_type = {} if of is None else {"schemaType": of}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, identity = self.path.partition("?")[0].rpartition("/")
            if path.endswith("/versions"):
                subject = path.split("/")[-2]
                schema = (subjects or {}).get((subject, int(identity)))
                version: dict[str, object] = {"subject": subject, "version": int(identity), "id": 0, "schema": schema}
                self.answer({**version, **schema_type} if schema else None, 404)
                return
            has_schema = identity.isdigit() and int(identity) in schemas
            others = (references or {}).get(int(identity), ()) if has_schema else ()
            said: dict[str, object] = {"references": others}
            if has_schema:
                said["schema"] = schemas[int(identity)]
            self.answer({**said, **schema_type} if has_schema else None, 404)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
            same = [identity for identity, schema in schemas.items() if json.loads(schema) == json.loads(asked)]
            self.answer({"id": same[0]} if same else None, 409)

        def answer(self, body: object, otherwise: int) -> None:
            content = json.dumps(body or {"error_code": otherwise, "message": "not found"}).encode()
            self.send_response(200 if body else otherwise)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
