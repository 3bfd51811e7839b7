"""What decoders remember of the schemas that payloads were written with, whose ids anybody can make up."""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError

from streaming.formats import decoder
from streaming.formats.avro_decoder import AvroDecoder
from streaming.formats.decoder import Decoder, Writers
from streaming.formats.protobuf_decoder import ProtobufDecoder
from tests.streaming.formats.test_avro import FIRST
from tests.streaming.formats.test_protobuf import LINE, file, set_of
from tests.support.registry import registry

TYPES = pa.schema([("id", pa.string()), ("_unreadable", pa.string()), ("_wrong", pa.null()), ("_unknown", pa.null())])


def test_ids_that_are_made_up_take_no_room_from_those_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MOST_WRITERS", 3)
    writers, asked = Writers[str](), list[int]()

    def get(key: int) -> str:
        def ask() -> str:
            asked.append(key)
            return f"schema {key}"

        return writers.get(key, ask)

    for made_up in range(10, 20):
        assert (get(1), get(made_up)) == ("schema 1", f"schema {made_up}")
    assert asked == [1, *range(10, 20)]
    assert len(writers) == 3
    assert (get(10), asked[-1]) == ("schema 10", 10), "it was forgotten"


@pytest.mark.parametrize("of", ["avro", "protobuf"])
def test_a_decoder_remembers_no_more_schemas_than_its_bound(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MOST_WRITERS", 3)
    with registry({1: FIRST}) as url:
        made: Decoder
        if of == "avro":
            made = AvroDecoder(
                ("id",), TYPES, url, fastavro.parse_schema({"type": "record", "name": "R", "fields": []})
            )
        else:
            made = ProtobufDecoder(("id",), TYPES, url, set_of(file(LINE)), "shop.Line")
        payloads = [b"\0" + number.to_bytes(4) + b"\0" for number in range(2, 12)]
        (read,) = made.batches(iter([pa.record_batch({"_raw": payloads})]))
    assert read["_unreadable"].to_pylist() == [f"{of}: the registry has no schema {number}" for number in range(2, 12)]
    assert len(made._writers) == 3


def test_a_server_that_finds_nothing_and_is_no_registry_rejects_no_row(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = ProtobufDecoder(
            ("id",), TYPES, f"http://127.0.0.1:{server.server_port}", set_of(file(LINE)), "shop.Line"
        )
        with pytest.raises(SchemaRegistryError, match="HTTP status code 404"):
            list(made.batches(iter([pa.record_batch({"_raw": [b"\0\0\0\0\1\0"]})])))
        server.shutdown()
