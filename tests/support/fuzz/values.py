"""Types of columns, values of theirs that nothing stumbles over, and hostile ones with what must become of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
LONG = 12_000
_DEEP = 2_000
_SURROGATE = '"\\ud83d"'


@dataclass(frozen=True)
class Type:
    """A type of Spark; `parts` are the fields of a struct by name, or the one type of elements under ""."""

    ddl: str
    kind: str
    parts: Mapping[str, Type] | None = None
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Value:
    """A value as JSON has it, and as Python has what the log must hold of it."""

    text: str
    value: Any


@dataclass(frozen=True)
class Hostility:
    """A hostile value: which one, as JSON, and what it is where it can be read; `path` leads to it from its column."""

    kind: str
    text: str
    value: Any = None
    readable: bool = True
    whole: bool = False
    """The payload cannot be read at all because of it."""
    path: str = ""
    missing: bool = False


def leaf(name: str) -> Type:
    return Type(name, name)


def decimal(precision: int, scale: int) -> Type:
    return Type(f"decimal({precision}, {scale})", "decimal", digits=(precision, scale))


def array(of: Type) -> Type:
    return Type(f"array<{of.ddl}>", "array", {"": of})


def mapping(of: Type) -> Type:
    return Type(f"map<string, {of.ddl}>", "map", {"": of})


def struct(**fields: Type) -> Type:
    return Type(f"struct<{', '.join(f'{name}: {of.ddl}' for name, of in fields.items())}>", "struct", fields)


COLUMNS: Mapping[str, Type] = {
    **{"i8": leaf("tinyint"), "i16": leaf("smallint"), "i32": leaf("int"), "i64": leaf("bigint")},
    **{"f32": leaf("float"), "f64": leaf("double"), "d0": decimal(38, 0), "d2": decimal(12, 2), "d18": decimal(38, 18)},
    **{"s": leaf("string"), "b": leaf("boolean"), "day": leaf("date"), "ts": leaf("timestamp")},
    **{"xs": array(leaf("bigint")), "m": mapping(leaf("int")), "nested": array(array(decimal(5, 1)))},
    "st": struct(a=leaf("int"), b=struct(c=leaf("string"), d=decimal(5, 1))),
    "deep": array(struct(m=mapping(array(leaf("double"))))),
}
"""The columns that a stream may have beside its key, by name: expressions and functions know them by these."""

KEYS = (leaf("string"), leaf("bigint"), leaf("int"), leaf("date"), decimal(6, 2), leaf("timestamp"), leaf("boolean"))


def ordinary(random: Random, of: Type) -> Value:
    """A value of a type, neither null nor zero, for which no expression and no function of the fuzz fails."""
    match of.kind:
        case "array":
            # All different, as keys of a map that are made of them have to be.
            picked = [ordinary(random, of.parts[""]) for _ in range(3)] if of.parts else []
            if of.ddl == "array<bigint>":
                picked = [Value(str(each), each) for each in random.sample(range(1, 10), 3)]
            return _listed(picked)
        case "map":
            return _mapped({name: ordinary(random, of.parts[""]) for name in ("a", "b")} if of.parts else {})
        case "struct":
            return _of_fields({name: ordinary(random, part) for name, part in (of.parts or {}).items()})
        case "string":
            digit = str(random.randint(1, 9))
            return Value(f'"{digit}"', digit)
        case "boolean":
            return Value("true", True)
        case "float" | "double":
            number = random.randint(1, 18) / 2
            return Value(repr(number), number)
        case "decimal":
            exact = Decimal(random.randint(1, 9)) + (Decimal("0.5") if of.digits[1] else 0)
            return Value(str(exact), exact)
        case "date":
            day = date(2026, 1, random.randint(1, 9))
            return Value(f'"{day}"', day)
        case "timestamp":
            time = datetime(2026, 1, 1, random.randint(0, 9), tzinfo=UTC)
            return Value(f'"{time.isoformat()}"', time)
    number = random.randint(1, 9)
    return Value(str(number), number)


def _listed(parts: Sequence[Value]) -> Value:
    return Value(f"[{', '.join(part.text for part in parts)}]", [part.value for part in parts])


def _mapped(parts: Mapping[str, Value]) -> Value:
    return Value(_object(parts), [(name, part.value) for name, part in parts.items()])


def _of_fields(parts: Mapping[str, Value]) -> Value:
    return Value(_object(parts), {name: part.value for name, part in parts.items()})


def _object(parts: Mapping[str, Value]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {part.text}' for name, part in parts.items())}}}"


def hostile(random: Random, of: Type) -> Hostility:
    """One hostile value for a column of a type, as a whole or somewhere within it."""
    if of.parts is None or random.random() < 0.3:
        return random.choice(_hostilities(of))
    name = random.choice([*of.parts])
    within = hostile(random, of.parts[name])
    place = Value(within.text, within.value)
    match of.kind:
        case "array":
            parts = [ordinary(random, of.parts[""]) for _ in range(3)]
            at = random.randrange(3)
            parts[at] = place
            made, path = _listed(parts), f"[{at}]"
        case "map":
            made, path = _mapped({"a": place, "b": ordinary(random, of.parts[""])}), '["a"]'
        case _:
            fields = {each: ordinary(random, part) for each, part in of.parts.items()}
            if within.missing:
                text = _object({each: part for each, part in fields.items() if each != name})
                made = Value(text, _of_fields({**fields, name: place}).value)
            else:
                made = _of_fields({**fields, name: place})
            path = f".{name}"
    return Hostility(within.kind, made.text, made.value, within.readable, within.whole, path + within.path)


def _hostilities(of: Type) -> list[Hostility]:
    return [*_everywhere(of), *_OF_KIND[of.kind](of)]


def _everywhere(of: Type) -> list[Hostility]:
    depth = "[" * _DEEP + "]" * _DEEP
    wrong = "{}" if of.kind not in ("struct", "map") else "[]"
    # Of an array one level is well-formed.
    return [
        Hostility("null", "null"),
        Hostility("NaN", "NaN", readable=False, whole=True),
        Hostility("NaN", '"NaN"', "NaN", readable=of.kind == "string"),
        Hostility("deep", depth, readable=False, whole=of.kind == "array"),
        Hostility("wrong type", wrong, readable=False),
        *([] if of.kind == "array" else [Hostility("wrong type", "[1]", readable=False)]),
    ]


def _integers(of: Type) -> list[Hostility]:
    end = 2 ** (INTEGERS[of.kind] - 1)
    good = [Hostility("extreme", str(each), each) for each in (end - 1, -end, 0, -1)]
    return good + [Hostility("extreme", text, readable=False) for text in (str(end), str(-end - 1), "1e400", "9" * 999)]


def _floats(of: Type) -> list[Hostility]:
    most = 3.4028234663852886e38
    is_double = of.kind == "double"
    return [
        Hostility("extreme", "0", 0.0),
        Hostility("extreme", "-0.0", 0.0),
        Hostility("extreme", repr(most), most),
        Hostility("extreme", "1.7976931348623157e308", 1.7976931348623157e308, readable=is_double),
        Hostility("extreme", "5e-324", 5e-324 if is_double else 0.0),
        Hostility("extreme", "-1e999", readable=False),
        Hostility("empty", '""', readable=False),
    ]


def _decimals(of: Type) -> list[Hostility]:
    precision, scale = of.digits
    # Arithmetic with Decimal rounds to the digits of its context.
    nines = Decimal((0, (9,) * precision, -scale))
    return [
        Hostility("extreme", "0", Decimal(0)),
        Hostility("extreme", str(nines), nines),
        Hostility("extreme", f"-{nines}", Decimal((1, (9,) * precision, -scale))),
        Hostility("extreme", f"1e{precision - scale}", readable=False),
        Hostility("extreme", f"1e-{scale + 1}", readable=False),
        Hostility("empty", '""', readable=False),
    ]


def _strings(of: Type) -> list[Hostility]:
    texts = {"": "empty", " ": "empty", "y" * LONG: "long", "é𝄞" * (LONG // 6): "long", "\x00": "extreme"}
    texts |= {"0001-01-01": "year 1", "9999-12-31": "year 9999", "2147483648": "extreme", "-0": "extreme"}
    texts |= {"null": "extreme", "a\r\nb\u2028": "extreme", "\"`'; drop": "extreme", "1e400": "extreme"}
    return [
        *(Hostility(kind, json.dumps(text), text) for text, kind in texts.items()),
        Hostility("extreme", _SURROGATE, readable=False),
    ]


def _booleans(of: Type) -> list[Hostility]:
    return [Hostility("extreme", "false", False), Hostility("empty", '""', readable=False)]


def _dates(of: Type) -> list[Hostility]:
    return [
        Hostility("year 1", '"0001-01-01"', date.min),
        Hostility("year 9999", '"9999-12-31"', date.max),
        *(Hostility("extreme", f'"{text}"', readable=False) for text in ("0000-01-01", "10000-01-01", "2026-02-30")),
        Hostility("empty", '""', readable=False),
    ]


def _timestamps(of: Type) -> list[Hostility]:
    last = datetime.max.replace(tzinfo=UTC)
    bad = ("0001-01-01T00:00:00+01:00", "10000-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z")
    return [
        Hostility("year 1", '"0001-01-01T00:00:00Z"', datetime.min.replace(tzinfo=UTC)),
        Hostility("year 9999", '"9999-12-31T23:59:59.999999Z"', last),
        Hostility("extreme", '"1969-12-31T23:59:59.999999Z"', datetime(1970, 1, 1, tzinfo=UTC) - timedelta.resolution),
        *(Hostility("extreme", f'"{text}"', readable=False) for text in bad),
        Hostility("empty", '""', readable=False),
    ]


def _arrays(of: Type) -> list[Hostility]:
    inner = (of.parts or {})[""]
    many = ordinary(Random(0), inner)
    return [
        Hostility("empty", "[]", []),
        Hostility("null", "[null]", [None]),
        Hostility("long", f"[{', '.join([many.text] * 3_000)}]", [many.value] * 3_000),
    ]


def _maps(of: Type) -> list[Hostility]:
    inner = ordinary(Random(0), (of.parts or {})[""])
    return [
        Hostility("empty", "{}", []),
        Hostility("empty", f'{{"": {inner.text}}}', [("", inner.value)]),
        Hostility("long", f'{{"{"k" * LONG}": {inner.text}}}', [("k" * LONG, inner.value)]),
        Hostility("extreme", f'{{"a": {inner.text}, "a": {inner.text}}}', readable=False, whole=True),
    ]


def _structs(of: Type) -> list[Hostility]:
    nothing = dict.fromkeys(of.parts or {})
    return [Hostility("empty", "{}", nothing), Hostility("extreme", '{"nobody": [1, {"x": null}]}', nothing)]


_OF_KIND: Mapping[str, Callable[[Type], list[Hostility]]] = {
    **dict.fromkeys(INTEGERS, _integers),
    **{"float": _floats, "double": _floats, "decimal": _decimals, "string": _strings, "boolean": _booleans},
    **{"date": _dates, "timestamp": _timestamps, "array": _arrays, "map": _maps, "struct": _structs},
}
