"""The fields of a stream that follow from the terms of a data contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from streaming.base import ContractError, sql
from streaming.contracts import Asked, Contract, Terms, ddl_of, renamed_terms, unique_check
from streaming.declare.freshness import Freshness
from streaming.declare.rule import Rule
from streaming.formats import Format

_REVISED_BY = ("key", "sequence", "snapshots")


def contracted(terms: Terms, format_of: Callable[..., Format], more: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stream by name; those of `more` take the place of the terms', and its rules are added.

    Raises:
        ContractError: there is no event time, or of a stream with a key a column is to be unique.
    """
    terms = renamed_terms(terms, more.get("name", terms.name))
    renamed = {"fields": dict(terms.fields)} if terms.fields else {}
    plain = format_of(ddl_of(terms.columns), **renamed)
    revised = plain.revisions is not None or any(more.get(name) is not None for name in _REVISED_BY)
    event_time = more.get("event_time") or terms.event_time
    if event_time is None:
        raise ContractError(
            f"contract {terms.contract} does not say which column of {terms.name!r} is the event time",
            "add event_time='<column>', or agree on a latency whose element is that column, such as "
            f"{terms.name}.placed_at.",
            field="event_time",
            stream=terms.name,
        )
    if revised and terms.unique:
        raise ContractError(
            f"contract {terms.contract} has {terms.unique[0]!r} unique, and stream {terms.name!r} has a key: of its "
            "revisions many have one value, and nothing here looks at those that stand",
            "leave it out of the contract, or make a report ask for it.",
            field="unique",
            value=terms.unique[0],
            stream=terms.name,
        )
    required, format_ = _required(terms, format_of, renamed) if revised else ((), plain)
    rules = (*required, *_rules(terms))
    values: dict[str, Any] = {
        "name": terms.name,
        "format": format_,
        "event_time": event_time,
        "description": terms.description,
        "retention": terms.retention,
        "fresh_within": freshness_asked(terms.freshness),
        "contract": _contract(terms, rules, revised),
        **({"key": terms.contract.key} if revised else {}),
    }
    return {**values, **more, "rules": (*rules, *more.get("rules", ()))}


def _required(
    terms: Terms, format_of: Callable[..., Format], renamed: Mapping[str, Any]
) -> tuple[tuple[Rule, ...], Format]:
    """Rules for what is required, and the format without it: a row that deletes has its key alone."""
    rules = (required_rule(column) for column in terms.columns if column.required)
    optional = tuple(replace(column, required=False) for column in terms.columns)
    return tuple(rules), format_of(ddl_of(optional), **renamed)


def required_rule(column: sql.Column) -> Rule:
    """The rule that a column is not null."""
    return Rule(f"{column.name.lower()}_required", f"`{column.name}` is not null")


def _rules(terms: Terms) -> tuple[Rule, ...]:
    return tuple(
        Rule(each.name, each.condition, on_violation="reject" if each.severity == "error" else "warn")
        for each in terms.conditions
    )


def _contract(terms: Terms, rules: tuple[Rule, ...], revised: bool) -> Contract:
    contract = terms.contract
    keys = () if revised or not contract.key else (contract.key,)
    once = tuple(unique_check(terms.name, columns) for columns in (*keys, *((name,) for name in terms.unique)))
    return replace(contract, checks=(*once, *contract.checks), rules=tuple(rule.name for rule in rules))


def freshness_asked(asked: Asked | None) -> str | Freshness | None:
    """The freshness of the terms as a stream has it."""
    if asked is None or not asked.by:
        return None if asked is None else asked.within
    more: dict[str, Any] = {"retired_after": asked.retired_after, "named": asked.named}
    return Freshness(asked.within, asked.by, **{name: value for name, value in more.items() if value is not None})
