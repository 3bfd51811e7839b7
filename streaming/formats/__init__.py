"""Formats: from a payload to typed columns, and what could not be read."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.formats.avro import Avro
    from streaming.formats.avro_types import parsed as parsed_schema
    from streaming.formats.csv import Csv
    from streaming.formats.debezium import Debezium
    from streaming.formats.decoder import UNKNOWN, UNREADABLE, WRONG, Decoder, added_types
    from streaming.formats.format import TYPED, Format
    from streaming.formats.json import Json
    from streaming.formats.leaves import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO
    from streaming.formats.protobuf import Protobuf
    from streaming.formats.text import Text

make_front(__name__)
