"""Whatever is declared and however deep: a payload is valid and equal, or rejected with the path and the value.

The oracle knows Python's `json`, `decimal` and `datetime`, and nothing of the reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.base import columns_of
from streaming.formats.json_text import object_of
from streaming.formats.nested import reader_of

Draw = Callable[[st.SearchStrategy[Any]], Any]
NAMES = ("a", "b", "C", "d e", "f.g", "ü", "_h", 'say "i"')
WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


@dataclass(frozen=True)
class Type:
    """A type in DDL; `parts` are its fields with whether they must be there, or its one element."""

    ddl: str
    kind: str
    parts: tuple[tuple[str, Type, bool], ...] = ()
    digits: tuple[int, int] = (0, 0)


@st.composite
def decimals(draw: Draw) -> Type:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    return Type(f"decimal({precision}, {scale})", "decimal", digits=(precision, scale))


LEAVES = st.one_of(
    st.sampled_from([*WHOLE, "string", "boolean", "double", "float", "date", "timestamp"]).map(
        lambda name: Type(name, name)
    ),
    decimals(),
)


@st.composite
def structs(draw: Draw, inner: st.SearchStrategy[Type]) -> Type:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique_by=str.lower))
    parts = tuple((name, draw(inner), draw(st.booleans())) for name in names)
    fields = ", ".join(f"`{name}`: {type_.ddl}{' not null' if needed else ''}" for name, type_, needed in parts)
    return Type(f"struct<{fields}>", "struct", parts)


TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda of: Type(f"array<{of.ddl}>", "array", (("", of, False),))),
        inner.map(lambda of: Type(f"map<string, {of.ddl}>", "map", (("", of, False),))),
        structs(inner),
    ),
    max_leaves=5,
)


@dataclass
class Said:
    """A value as JSON has it, and as Arrow takes it; and the leaves in it by their paths."""

    text: str
    value: Any
    leaves: list[tuple[str, Type, list[str]]]


def quoted(draw: Draw, text: str) -> str:
    return json.dumps(text, ensure_ascii=draw(st.booleans()))


def said(draw: Draw, type_: Type, path: str, damage: str | None = None) -> Said:
    """A valid value of a type; `damage` stands in place of that of the leaf `path` names."""
    if type_.kind == "array":
        inner = type_.parts[0][1]
        parts = [maybe(draw, inner, f"{path}[{place}]", False) for place in range(draw(st.integers(0, 2)))]
        leaves = [leaf for part in parts for leaf in part.leaves]
        return Said(f"[{', '.join(part.text for part in parts)}]", [part.value for part in parts], leaves)
    if type_.kind == "map":
        keys = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
        inner = type_.parts[0][1]
        parts = [maybe(draw, inner, f"{path}[{json.dumps(key, ensure_ascii=False)}]", False) for key in keys]
        text = ",".join(f"{quoted(draw, key)}:{part.text}" for key, part in zip(keys, parts, strict=True))
        leaves = [leaf for part in parts for leaf in part.leaves]
        return Said(f"{{{text}}}", [(key, part.value) for key, part in zip(keys, parts, strict=True)], leaves)
    if type_.kind == "struct":
        found, value, leaves = [], {}, []
        for name, inner, needed in draw(st.permutations(type_.parts)):
            part = maybe(draw, inner, f"{path}.{name}", needed)
            value[name] = part.value
            leaves += part.leaves
            if part.text != "null" or draw(st.booleans()):
                found.append(f"{quoted(draw, name)} : {part.text}")
        return Said(f"{{{','.join(found)}}}", value, leaves)
    text, value = leaf(draw, type_)
    return Said(f"\x00{path}\x00", value, [(path, type_, [text])])


def maybe(draw: Draw, type_: Type, path: str, needed: bool) -> Said:
    if not needed and draw(st.integers(0, 4)) == 0:
        return Said("null", None, [])
    return said(draw, type_, path)


def leaf(draw: Draw, type_: Type) -> tuple[str, Any]:
    """A value of a simple type, as JSON has it and as Arrow takes it."""
    kind = type_.kind
    if kind in WHOLE:
        end = 2 ** (WHOLE[kind] - 1)
        number = draw(st.integers(-end, end - 1) | st.sampled_from([-end, end - 1, 0]))
        return str(number), number
    if kind == "decimal":
        precision, scale = type_.digits
        number = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
        exact = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
        forms = [
            f"{exact:f}",
            f"{number}e-{scale}",
            f"{number * 100}E-{scale + 2}",
            f"{exact:f}{'000' if scale else ''}",
        ]
        return draw(st.sampled_from(forms)), exact
    if kind == "double":
        number = draw(st.floats(allow_nan=False, allow_infinity=False))
        return repr(number), number
    if kind == "float":
        number = draw(st.floats(allow_nan=False, allow_infinity=False, width=32))
        return repr(number), number
    if kind == "boolean":
        return draw(st.sampled_from([("true", True), ("false", False)]))
    if kind == "date":
        day = draw(st.dates())
        return f'"{day.isoformat()}"', day
    if kind == "timestamp":
        moment = draw(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))
        minutes = draw(st.integers(-18 * 60, 18 * 60))
        there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
        offset = there.isoformat()[-6:]
        forms = [offset, offset.replace(":", "")] + ([offset[:3]] if minutes % 60 == 0 else [])
        forms += ["Z"] if minutes == 0 else []
        text = moment.isoformat() if moment.second or moment.microsecond else moment.isoformat()[:16]
        micros = (there - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return f'"{text}{draw(st.sampled_from(forms))}"', micros
    text = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    return quoted(draw, text), text


def damaged(draw: Draw, type_: Type) -> str:
    """What stands for no value of a simple type, as JSON has it."""
    kind = type_.kind
    texts = [
        '"x"',
        '""',
        "true",
        "[]",
        "{}",
        '"NaN"',
        "1e400",
        '"2026-01-01 10:00:00"',
        "2.5",
        '"10,00"',
        "1",
        "1e999999",
    ]
    good = {
        "string": {text for text in texts if text.startswith('"')},
        "boolean": {"true"},
        "double": {"2.5", "1"},
        "float": {"2.5", "1"},
        "decimal": {"2.5", "1"},
        **{name: {"1"} for name in WHOLE},
    }
    more = {
        "string": ['"\\ud83d"', '"a\\udc00b"'],
        "float": ["3.5e38", "-1e39"],
        "date": ['"2026-02-30"', '"2026-1-1"', '"0000-01-01"', '"10000-01-01"'],
        "timestamp": [
            '"2026-01-01T00:00:00"',
            '"2026-02-30T00:00:00Z"',
            '"2026-01-01T00:00:00.1234567Z"',
            '"10000-01-01T00:00Z"',
            '"0001-01-01T00:00+01"',
        ],
    }.get(kind, [])
    if kind in WHOLE:
        end = 2 ** (WHOLE[kind] - 1)
        more = [str(end), str(-end - 1), "1.0", "1e0", "9" * 5000]
    if kind == "decimal":
        precision, scale = type_.digits
        more = [f"1e{precision - scale}", f"0.{'0' * scale}1", f"-{10 ** (precision - scale)}", f"1e-{scale + 1}"]
    return draw(st.sampled_from([*more, *more, *(text for text in texts if text not in good.get(kind, set()))]))


def filled(text: str, leaves: list[tuple[str, Type, list[str]]]) -> str:
    for path, _, (written,) in leaves:
        text = text.replace(f"\x00{path}\x00", written, 1)
    return text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_payload_is_valid_and_equal_or_rejected_with_path_and_value(data: st.DataObject) -> None:
    draw: Draw = data.draw
    columns = draw(st.lists(st.tuples(TYPES, st.booleans()), min_size=1, max_size=3))
    names = [f"c{place}" for place in range(len(columns))]
    schema = ", ".join(
        f"{name} {type_.ddl}{' not null' if needed else ''}"
        for name, (type_, needed) in zip(names, columns, strict=True)
    )
    parts = [maybe(draw, type_, name, needed) for name, (type_, needed) in zip(names, columns, strict=True)]
    payload = "{" + ",".join(f'"{name}":{part.text}' for name, part in zip(names, parts, strict=True)) + "}"
    leaves = [leaf for part in parts for leaf in part.leaves]
    read = reader_of(columns_of(schema))

    row = read(object_of(filled(payload, leaves).encode()))
    assert (row.wrong, row.unknown) == (None, None)
    assert row.values == [part.value for part in parts]

    if not leaves:
        return
    place = draw(st.integers(0, len(leaves) - 1))
    path, type_, _ = leaves[place]
    text = damaged(draw, type_)
    broken = [(*leaf[:2], [text]) if number == place else leaf for number, leaf in enumerate(leaves)]
    row = read(object_of(filled(payload, broken).encode()))
    column = next(name for name in names if path.startswith(name))
    assert row.wrong is not None and list(row.wrong) == [column]
    reason = row.wrong[column]
    assert reason.startswith(f"type: {path} is not "), reason
    assert reason.partition(", got ")[2].removesuffix("...") == text[:50], reason
    assert row.values == [None if name == column else part.value for name, part in zip(names, parts, strict=True)]
