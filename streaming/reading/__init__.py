"""Reading of the lake without Spark: tables as they lie, selections of their rows, SQL over all of them."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.reading.changed import Changed, changed
    from streaming.reading.conditions import Untranslatable
    from streaming.reading.keys import (
        instant_of,
        key_as_texts,
        key_as_typed,
        near_keys,
        rows_of_key,
        value_as_typed,
        value_of_typed,
    )
    from streaming.reading.read import Rows, read
    from streaming.reading.result_keys import ResultKeys, result_keys
    from streaming.reading.selection import Choice
    from streaming.reading.sql import LakeDatabase
    from streaming.reading.stored import StoredRows, stored_rows
    from streaming.reading.texts import can_be_written, csv_line, csv_lines, json_lines

make_front(__name__)
