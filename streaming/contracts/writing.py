"""Writes terms as a file of the Open Data Contract Standard, from which the same terms are read again."""

from __future__ import annotations

from typing import Any

from streaming.base import ContractError, interval, needs
from streaming.contracts.standard import violations
from streaming.contracts.terms import Check, Condition, Terms
from streaming.contracts.types import property_of

API_VERSION = "v3.2.0"
"""The version of the standard that is written: the first that has maps, and says whose an own property is."""


def written_contract(terms: Terms) -> str:
    """The file as YAML, held against the schema of the standard before it is given.

    Raises:
        ContractError: the standard has no place for something, such as an owner that is no address.
        MissingExtra: the libraries of the extra `contracts` are not installed.
    """
    needs("open_data_contract_standard", "a data contract")
    import yaml
    from open_data_contract_standard.model import OpenDataContractStandard

    document = _document(terms)
    for place, says in violations(document):
        raise ContractError(f"the contract of {terms.name!r} cannot have {place}: {says}", "rename it.", value=place)
    OpenDataContractStandard(**document)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _document(terms: Terms) -> dict[str, Any]:
    contract = terms.contract
    table = {
        "name": terms.name,
        "physicalType": "table",
        "logicalType": "object",
        **({"description": terms.description} if terms.description else {}),
        "properties": [_property(terms, column.name) for column in terms.columns],
    }
    quality = [_of_condition(terms.name, each) for each in terms.conditions]
    quality += [_of_check(each) for each in contract.checks]
    if quality:
        table["quality"] = quality
    if terms.event_time is not None:
        table["customProperties"] = [_own("eventTime", terms.event_time)]
    agreed = [*_latency(terms), *_retention(terms)]
    return {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": contract.id,
        "version": contract.version,
        "status": contract.status,
        "schema": [table],
        **_team(contract.owners),
        **({"slaProperties": agreed} if agreed else {}),
    }


def _property(terms: Terms, name: str) -> dict[str, Any]:
    column, fields = terms.column(name), dict(terms.fields)
    assert column is not None
    told = property_of(column)
    if name in terms.contract.key:
        told |= {"primaryKey": True, "primaryKeyPosition": terms.contract.key.index(name) + 1}
    if name in terms.unique:
        told["unique"] = True
    if name in fields:
        told["physicalName"] = fields[name]
    return told


def _of_condition(table: str, of: Condition) -> dict[str, Any]:
    query = f"SELECT count(*) FROM {table} WHERE NOT coalesce(({of.condition}), false)"
    return {"name": of.name, "type": "sql", "query": query, "mustBe": 0, "severity": of.severity}


def _of_check(of: Check) -> dict[str, Any]:
    bound = list(of.bound) if isinstance(of.bound, tuple) else of.bound
    meaning = {"description": of.meaning} if of.meaning else {}
    return {"name": of.name, **meaning, "type": "sql", "query": of.query, of.operator: bound, "severity": of.severity}


def _latency(terms: Terms) -> list[dict[str, Any]]:
    asked = terms.freshness
    if asked is None:
        return []
    own = {"by": list(asked.by) or None, "retiredAfter": asked.retired_after, "named": asked.named}
    told = [_own(name, value) for name, value in own.items() if value is not None]
    element = terms.name if terms.event_time is None else f"{terms.name}.{terms.event_time}"
    return [
        {"property": "latency", **_length(asked.within), "element": element}
        | ({"customProperties": told} if told else {})
    ]


def _retention(terms: Terms) -> list[dict[str, Any]]:
    if terms.retention is None:
        return []
    return [{"property": "retention", **_length(terms.retention), "element": terms.name}]


def _length(text: str) -> dict[str, Any]:
    """A length of time in the largest unit that has it whole."""
    seconds = interval(text).total_seconds()
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds % length == 0:
            return {"value": int(seconds // length), "unit": unit}
    return {"value": int(seconds) if seconds.is_integer() else seconds, "unit": "s"}


def _own(name: str, value: Any) -> dict[str, Any]:
    return {"property": name, "value": value, "vendor": "tidemark"}


def _team(owners: tuple[str, ...]) -> dict[str, Any]:
    teams = [owner.removeprefix("team:") for owner in owners if owner.startswith("team:")]
    members = [{"username": owner, "role": "owner"} for owner in owners if not owner.startswith("team:")]
    if len(teams) > 1:
        raise ContractError(
            f"{', '.join(teams)} own it, and a contract has one team", "keep one of them.", value=tuple(teams)
        )
    team = {**({"name": teams[0]} if teams else {}), **({"members": members} if members else {})}
    return {"team": team} if team else {}
