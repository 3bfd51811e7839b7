"""Reads a file of the Open Data Contract Standard; what cannot be followed is refused by its place in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.base import ContractError, needs, sql
from streaming.contracts.quality import option_conditions, quality_terms, says_nothing
from streaming.contracts.standard import violations
from streaming.contracts.terms import Asked, Check, Condition, Contract, Terms
from streaming.contracts.types import meaning_of, range_of, spark_type, width_of

if TYPE_CHECKING:
    from open_data_contract_standard.model import (
        OpenDataContractStandard,
        SchemaObject,
        SchemaProperty,
        ServiceLevelAgreementProperty,
    )

_UNITS = {"s": "second", "sec": "second", "min": "minute", "m": "minute", "h": "hour", "hr": "hour", "d": "day"}
_UNITS |= {"w": "week", "ms": "millisecond"}
_FRESH = ("latency", "freshness", "ly")
_OWNS = ("owner", "data owner", "product owner", "dataowner", "productowner")
_EVENT_TIME, _BY = "eventTime", "by"
_RETIRED_AFTER, _NAMED = "retiredAfter", "named"
_MOST_REFUSED = 20


def read_contract(path: str | Path, table: str | None = None, without: Collection[str] = ()) -> Terms:
    """The terms of a table in a contract's file; `table` names it where the file has several.

    `without` are the places of what is asked and not followed here on purpose, as the error tells them.

    Raises:
        ContractError: the file is not there, is none of the standard, has no such table, or asks for what cannot be
            followed; with the place of each.
        MissingExtra: the libraries of the extra `contracts` are not installed.
    """
    needs("open_data_contract_standard", "a data contract")
    contract = _parsed(Path(path))
    objects = contract.schema_ or []
    chosen = [each for each in objects if table in (None, each.name, each.physicalName)]
    if len(chosen) != 1:
        names = tuple(each.name or "" for each in objects)
        raise ContractError(
            f"contract {str(path)!r} has {'no table' if not chosen else 'several tables'}"
            f"{'' if table is None else f' {table!r}'}: {', '.join(names) or 'none'}",
            "name one of these: table='<name>'.",
            field="table",
            value=table,
            choices=names,
        )
    reader = _Reader(contract, chosen[0])
    terms = reader.terms()
    unknown = [place for place in without if place not in reader.refused]
    refused = {place: why for place, why in reader.refused.items() if place not in without}
    if refused or unknown:
        shown = [f"{place}: {why}" for place, why in refused.items()]
        shown += [f"{place}: it is left out, and there is nothing of it to leave out" for place in unknown]
        more = len(shown) - _MOST_REFUSED
        lines = "".join(f"\n  {line}" for line in shown[:_MOST_REFUSED]) + (f"\n  and {more} more" if more > 0 else "")
        raise ContractError(
            f"contract {str(path)!r} asks for what cannot be followed:{lines}\n",
            f"Correct the file, or leave it out by its place: without=({next(iter([*refused, *unknown]))!r},).",
            field="without",
            value=tuple(refused) or tuple(unknown),
            choices=tuple(reader.refused),
        )
    return terms


def _parsed(path: Path) -> OpenDataContractStandard:
    import yaml
    from open_data_contract_standard.model import OpenDataContractStandard

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ContractError(
            f"contract {str(path.absolute())!r} cannot be read: {error.strerror}",
            "name a file that is there, such as Path(__file__).with_name('orders.odcs.yaml').",
            value=str(path),
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise ContractError(f"contract {str(path)!r} is no YAML: {text}", "correct it.", value=str(path)) from error
    version = raw.get("apiVersion") if isinstance(raw, dict) else None
    if not str(version).startswith("v3."):
        raise ContractError(
            f"contract {str(path)!r} has apiVersion {version!r}, and is none of the Open Data Contract Standard 3",
            "write it as such a file, with apiVersion: v3.0.0 or a later one.",
            value=version,
        )
    # A date is one to YAML, and text to the standard.
    raw = json.loads(json.dumps(raw, default=str))
    wrong = violations(raw)
    if wrong:
        lines = "".join(f"\n  {place}: {says[:200]}" for place, says in wrong[:5])
        raise ContractError(
            f"contract {str(path)!r} is not as the schema of the standard has it:{lines}\n",
            "Correct it there.",
            value=str(path),
        )
    return OpenDataContractStandard(**raw)


class _Reader:
    """The terms of one table of a contract, what of it is refused, and what is told and changes nothing."""

    def __init__(self, contract: OpenDataContractStandard, table: SchemaObject) -> None:
        self._contract = contract
        self._table = table
        self._name = table.physicalName or table.name or ""
        self.refused: dict[str, str] = {}
        self._untaken: list[str] = []

    def terms(self) -> Terms:
        table, name = self._table, self._name
        properties = table.properties or []
        if not properties:
            self._refuse(name, "it has no properties, and a stream has columns")
        self._refuse_same_names(properties, name)
        columns = tuple(self._column(each) for each in properties)
        keyed = [each for each in properties if each.primaryKey]
        key = tuple(each.name or "" for each in sorted(keyed, key=lambda each: each.primaryKeyPosition or 0))
        unique = tuple(each.name or "" for each in properties if each.unique and (each.name,) != key)
        parts = [term for each, column in zip(properties, columns, strict=True) for term in self._of(each, column.type)]
        parts += quality_terms(table.quality or [], name, None, name, self._refuse, self._tell)
        checks = tuple(self._distinct([each for each in parts if isinstance(each, Check)]))
        conditions = tuple(self._distinct([each for each in parts if isinstance(each, Condition)]))
        self._refuse_unknown_elements()
        freshness, element = self._freshness()
        event_time = self._custom("tidemark", _EVENT_TIME) or element
        retention = self._retention()
        owners, description = tuple(self._owners()), self._description()
        self._tell_rest()
        return Terms(
            name=name,
            contract=Contract(
                self._contract.id or name,
                self._contract.version or "",
                self._contract.status or "active",
                key=key,
                owners=owners,
                checks=checks,
                untaken=tuple(self._untaken),
            ),
            columns=columns,
            description=description,
            conditions=conditions,
            unique=unique,
            fields=tuple((each.name or "", each.physicalName or "") for each in properties if _is_renamed(each)),
            event_time=event_time,
            freshness=freshness,
            retention=retention,
        )

    def _refuse(self, place: str, why: str) -> None:
        self.refused[place] = why

    def _tell(self, place: str, why: str) -> None:
        self._untaken.append(f"{place}: {why}")

    def _column(self, of: SchemaProperty) -> sql.Column:
        type_ = spark_type(of, f"{self._name}.{of.name}", self._refuse)
        return sql.Column(of.name or "", type_, bool(of.required), meaning_of(of))

    def _of(self, of: SchemaProperty, type_: str) -> Iterator[Condition | Check]:
        place = f"{self._name}.{of.name}"
        yield from option_conditions(of, type_, place, f"`{of.name}`", self._refuse)
        yield from quality_terms(of.quality or [], self._name, of.name, place, self._refuse, self._tell)
        yield from self._of_parts(of, f"`{of.name}`", place)

    def _of_parts(self, of: SchemaProperty, value: str, place: str) -> Iterator[Condition]:
        """The conditions of the parts of a struct; within arrays and maps there is no place for one."""
        for part in of.properties or ():
            where, field = f"{place}.{part.name}", f"{value}.`{part.name}`"
            yield from option_conditions(part, spark_type(part, where, self._refuse), where, field, self._refuse)
            self._refuse_field(part, where)
            yield from self._of_parts(part, field, where)
        self._refuse_elements(of, place)

    def _refuse_same_names(self, properties: Sequence[SchemaProperty], place: str) -> None:
        """Refuse a column, or a part of one, whose name another one has in any case."""
        taken: dict[str, str] = {}
        for each in properties:
            name, where = each.name or "", f"{place}.{each.name}"
            if name.lower() in taken:
                self._refuse(where, f"{taken[name.lower()]!r} is there, too, and names are the same in any case")
            taken.setdefault(name.lower(), name)
            for of, within in _with_elements(each, where):
                self._refuse_same_names(of.properties or (), within)

    def _refuse_elements(self, of: SchemaProperty, place: str) -> None:
        """Refuse what is asked of the elements of an array or map, and of all that is in them."""
        for each, where, may_be_null in _elements(of, place):
            if each.required and may_be_null:
                self._refuse(f"{where}.required", "nothing here looks whether an element is null")
            self._refuse_whole(each, where)
            self._refuse_within(each, where)

    def _refuse_within(self, of: SchemaProperty, place: str) -> None:
        options = {
            option: asked
            for option, asked in (of.logicalTypeOptions or {}).items()
            if not says_nothing(option, asked, of.logicalType)
        }
        asked = {
            "logicalTypeOptions": options or range_of(of, spark_type(of, place, self._refuse)),
            "enum": of.enum,
            "physicalType": width_of(of),
        }
        self._refuse_asked(asked, place)
        for part in of.properties or ():
            self._refuse_field(part, f"{place}.{part.name}")
            self._refuse_within(part, f"{place}.{part.name}")
        self._refuse_elements(of, place)

    def _refuse_field(self, of: SchemaProperty, place: str) -> None:
        if _is_renamed(of):
            self._refuse(
                f"{place}.physicalName", f"payloads have it as {of.physicalName!r}, and only a column can be renamed"
            )
        self._refuse_whole(of, place)

    def _refuse_whole(self, of: SchemaProperty, place: str) -> None:
        """Refuse what only a whole column can be asked for."""
        self._refuse_asked({"primaryKey": of.primaryKey, "unique": of.unique, "quality": of.quality}, place)

    def _refuse_asked(self, asked: dict[str, Any], place: str) -> None:
        for what, value in asked.items():
            if value:
                self._refuse(f"{place}.{what}", "it is asked of a part, and only whole columns and structs are checked")

    def _distinct(self, terms: list[Any]) -> Iterator[Any]:
        """Terms with names that nothing else has: the second of a name gets a number."""
        taken: set[str] = set()
        for term in terms:
            name, number = term.name, 2
            while name in taken:
                name, number = f"{term.name}_{number}", number + 1
            taken.add(name)
            yield type(term)(**{**vars(term), "name": name})

    def _description(self) -> str:
        about = self._contract.description
        text = self._table.description or (about.purpose if about else None) or ""
        for what in ("usage", "limitations"):
            if about is not None and getattr(about, what):
                self._tell(f"description.{what}", "a text that people read")
        return text.strip()

    def _owners(self) -> Iterator[str]:
        """The team, and the addresses of its owners; of a team without a role for them, of nobody."""
        team = self._contract.team
        members = team if isinstance(team, list) else (team.members or [] if team is not None else [])
        if team is not None and not isinstance(team, list) and team.name:
            yield f"team:{re.sub(r'[^A-Za-z0-9_-]+', '_', team.name)}"
        for number, member in enumerate(members):
            owns = (member.role or "").lower() in _OWNS and member.dateOut is None
            if owns and re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", member.username or ""):
                yield str(member.username)
            else:
                self._tell(f"team.members[{number}]", "only owners with an address own something here")

    def _custom(self, vendor: str, name: str) -> Any:
        found = (each for each in self._table.customProperties or () if each.vendor == vendor and each.property == name)
        return next((each.value for each in found), None)

    def _freshness(self) -> tuple[Asked | None, str | None]:
        """The shortest of the latencies, and the column of its element where that is an instant."""
        found: list[tuple[Any, Asked, str | None]] = []
        for agreed in self._contract.slaProperties or ():
            if (agreed.property or "").lower() in _FRESH and self._concerns(agreed):
                within = self._interval(agreed)
                if within is not None:
                    found.append((within[0], _asked(agreed, within[1]), self._instant_of(agreed)))
        if not found:
            return None, None
        _, asked, element = min(found, key=lambda each: each[0])
        return asked, element

    def _retention(self) -> str | None:
        agreed = [
            self._interval(each)
            for each in self._contract.slaProperties or ()
            if (each.property or "").lower() == "retention" and self._concerns(each)
        ]
        found = [each for each in agreed if each is not None]
        if len({seconds for seconds, _ in found}) > 1:
            texts = ", ".join(text for _, text in found)
            self._refuse(
                "slaProperties.retention", f"several are agreed: {texts}; keep one, or leave out all but the first"
            )
        return found[0][1] if found else None

    def _refuse_unknown_elements(self) -> None:
        """Refuse a service level of what is not there: it would be of nothing."""
        tables = {name for each in self._contract.schema_ or () for name in (each.name, each.physicalName) if name}
        columns = {each.name for each in self._table.properties or ()}
        for agreed in self._contract.slaProperties or ():
            if (agreed.property or "").lower() in (*_FRESH, "retention"):
                for element in filter(None, (each.strip() for each in (agreed.element or "").split(","))):
                    table, _, column = element.partition(".")
                    is_own = table in (self._table.name, self._table.physicalName)
                    if table not in tables or (is_own and column and column.partition(".")[0] not in columns):
                        there = sorted(columns if table in tables else tables, key=str)
                        self._refuse(
                            f"slaProperties.{agreed.property}",
                            f"its element {element!r} is not there; there are {', '.join(map(str, there))}",
                        )

    def _concerns(self, agreed: ServiceLevelAgreementProperty) -> bool:
        """True of what is agreed on this table; an element is `table.column`, or several."""
        tables = {element.strip().partition(".")[0] for element in (agreed.element or "").split(",") if element.strip()}
        return not tables or bool(tables & {self._table.name, self._table.physicalName})

    def _instant_of(self, agreed: ServiceLevelAgreementProperty) -> str | None:
        names = [element.strip().partition(".")[2] for element in (agreed.element or "").split(",")]
        instants = [each.name for each in self._table.properties or () if self._column(each).type == "timestamp"]
        return next((name for name in names if name in instants), None)

    def _interval(self, agreed: ServiceLevelAgreementProperty) -> tuple[float, str] | None:
        """The length in seconds, and as an interval; none where it cannot be one."""
        value, unit = agreed.value, (agreed.unit or "").lower()
        if isinstance(value, str) and not unit:
            value, _, unit = value.strip().partition(" ")
        name = _UNITS.get(unit, unit.removesuffix("s"))
        seconds = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
        days = {"y": 365, "yr": 365, "year": 365, "mo": 30, "month": 30}
        try:
            number = float(str(value))
        except ValueError:
            number = 0.0
        if name in days:
            number, name = number * days[name], "day"
        if number <= 0 or name not in seconds:
            place = f"slaProperties.{agreed.property}"
            self._refuse(place, f"{agreed.value!r} {agreed.unit or ''} is no length of time, such as 4 with unit h")
            return None
        if not number.is_integer():
            number, name = number * seconds[name], "second"
        return number * seconds[name], f"{number:.0f} {name}{'' if number == 1 else 's'}"

    def _tell_rest(self) -> None:
        """Name what is told in the file and changes nothing here."""
        contract, table = self._contract, self._table
        for agreed in contract.slaProperties or ():
            if (agreed.property or "").lower() not in (*_FRESH, "retention"):
                self._tell(f"slaProperties.{agreed.property}", "nothing here measures it")
        taken = {"version", "kind", "apiVersion", "id", "status", "schema_", "team", "slaProperties", "description"}
        for name in type(contract).model_fields.keys() - taken:
            if getattr(contract, name):
                self._untaken.append(name)
        taken = {"name", "physicalName", "physicalType", "description", "logicalType", "properties", "quality"}
        for name in type(table).model_fields.keys() - taken:
            if getattr(table, name) and not (name == "customProperties" and _is_own(table.customProperties)):
                self._untaken.append(f"{self._name}.{name}")
        for each in table.properties or ():
            self._tell_rest_of(each, f"{self._name}.{each.name}")
        self._untaken.sort()

    def _tell_rest_of(self, of: SchemaProperty, place: str) -> None:
        taken = {"name", "physicalType", "physicalName", "description", "businessName", "primaryKey", "required"}
        taken |= {"primaryKeyPosition", "logicalType", "logicalTypeOptions", "unique", "examples", "enum", "quality"}
        taken |= {"properties", "items", "map"}
        for name in type(of).model_fields.keys() - taken:
            value = getattr(of, name)
            if value and not (name == "semanticType" and value == "column"):
                self._untaken.append(f"{place}.{name}")
        for part in of.properties or ():
            self._tell_rest_of(part, f"{place}.{part.name}")
        for each, where, _ in _elements(of, place):
            self._tell_rest_of(each, where)
            texts = ("physicalName", "description", "businessName", "examples")
            self._untaken += [f"{where}.{name}" for name in texts if getattr(each, name)]


def _asked(agreed: ServiceLevelAgreementProperty, within: str) -> Asked:
    own = {each.property: each.value for each in agreed.customProperties or () if each.vendor == "tidemark"}
    by, named = own.get(_BY) or (), own.get(_NAMED)
    return Asked(within, tuple(map(str, by)), own.get(_RETIRED_AFTER), None if named is None else int(named))


def _elements(of: SchemaProperty, place: str) -> Iterator[tuple[SchemaProperty, str, bool]]:
    """The elements of an array or map: each with its place, and true where one of them may be null."""
    if of.items is not None:
        yield of.items, f"{place}.items", True
    if of.map is not None:
        for name, each in (("key", of.map.key), ("value", of.map.value)):
            if each is not None:
                yield each, f"{place}.map.{name}", name == "value"


def _with_elements(of: SchemaProperty, place: str) -> Iterator[tuple[SchemaProperty, str]]:
    """A property, and the elements of an array or map that it is, and theirs, each with its place."""
    yield of, place
    for each, where, _ in _elements(of, place):
        yield from _with_elements(each, where)


def _is_renamed(of: SchemaProperty) -> bool:
    return of.physicalName is not None and of.physicalName != of.name


def _is_own(properties: Any) -> bool:
    return all(each.vendor == "tidemark" for each in properties)
