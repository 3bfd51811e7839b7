"""Checks of a keyed function: functions that workers can find, keys that are exact, names that are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from streaming.base import (
    DeclarationError,
    Types,
    check_column_name,
    check_name,
)
from streaming.declare.condition_rule import ConditionRule
from streaming.declare.functions import check_callable
from streaming.declare.stream import Stream
from streaming.declare.view_checks import check_keys

API = ("key", "at", "late", "stream", "rules", "matching", "emit", "timer", "cancel", "pending", "clear")
"""The attributes that a key has besides its state."""

_CHANGE = "change"
"""The attribute that a key has, too, where its function is called for rows that are taken back."""

_INEXACT = ("double", "float", "array", "map", "struct", "variant")


def check_connected(name: str, by: tuple[str, ...], order: str, streams: Sequence[Stream]) -> None:
    """Refuse several streams that have no key in common, or whose rows would come in no order that can be repeated.

    Raises:
        DeclarationError: with what to key by, or which order to use.
    """
    names = [stream.name for stream in streams]
    if len(names) == 1:
        return
    both = ", ".join(map(repr, names))
    for each in names:
        if names.count(each) > 1:
            raise DeclarationError(
                f"keyed function {name!r} reads stream {each!r} twice", "name each once.", operator=name, stream=each
            )
    common = [column for column in streams[0].types if len(_types_of(column, streams)) == 1]
    if not by or any(column not in common for column in by):
        raise DeclarationError(
            f"keyed function {name!r} reads {both} by {', '.join(map(repr, by)) or 'no key'}, so which of their rows "
            "belong together would be left to chance",
            "key them by columns that all of them have, of the same type: "
            f"{', '.join(common) or 'none so far, so derive one'}.",
            operator=name,
        )
    if order == "arrival":
        raise DeclarationError(
            f"keyed function {name!r} reads {both} in order 'arrival', but how rows of several logs came after one "
            "another follows from none of them",
            "use order='event', or, where one of them only sets rules for the other, rules=Pinned(...).",
            operator=name,
        )


def check_rules(name: str, streams: Sequence[Stream], control: Stream) -> None:
    """Refuse rules for several streams, a stream that is its own rules, and conditions about another one.

    Raises:
        DeclarationError: with what to do instead.
    """
    if len(streams) > 1:
        raise DeclarationError(
            f"keyed function {name!r} has rules and reads {len(streams)} streams",
            "let one function have the rules, and another one connect the streams.",
            operator=name,
        )
    if control in streams:
        raise DeclarationError(
            f"the rules of keyed function {name!r} are those of {control.name!r}, which is the stream it reads",
            "name a stream that sets rules, or a history of another one.",
            operator=name,
        )
    conditions = [rule for rule in control.rules if isinstance(rule, ConditionRule)]
    if len(conditions) > 1 or any(rule.of != streams[0] for rule in conditions):
        about = ", ".join(f"{rule.column} about {rule.of.name}" for rule in conditions)
        raise DeclarationError(
            f"keyed function {name!r} reads {streams[0].name!r}, and the conditions of its rules are: {about}.",
            "Give the control stream one ConditionRule, about that stream as it is declared.",
            operator=name,
        )


def _types_of(column: str, streams: Sequence[Stream]) -> set[str | None]:
    return {stream.types.get(column, "missing") for stream in streams}


def check_functions(name: str, on_row: object, timers: Mapping[str, object], migrate: object = None) -> None:
    """Refuse what cannot be called, or cannot be found by its name in another process.

    Raises:
        DeclarationError: with what to write.
    """
    for timer in timers:
        check_name("timer", timer)
    others = {} if migrate is None else {"migrate": migrate}
    of_timers = {f"timer {timer!r}": entry for timer, entry in timers.items()}
    for what, function in {"on_row": on_row, **of_timers, **others}.items():
        check_callable(f"{what} of keyed function {name!r}", function)


def check_keys_are_exact(what: str, by: tuple[str, ...], types: Types) -> None:
    """Refuse a key that is no column, comes twice, or is of a type whose equal values are not always the same.

    Raises:
        DeclarationError: with what to key by instead.
    """
    check_keys(what, by, types)
    if len(set(by)) != len(by):
        raise DeclarationError(f"{what} is {by!r}, which repeats a key", "name each once.")
    for column in by:
        kind = (types.get(column) or "").partition("<")[0]
        if kind in _INEXACT:
            raise DeclarationError(
                f"{what} has {column!r}, of type {kind}, whose equal values are not always the same key",
                "derive a column of text, whole numbers or decimals in the stream, and key by that.",
            )


def check_retractions(name: str, order: str, retractions: object) -> None:
    """Refuse to call a function for rows that are taken back where it is called for those that stand.

    Raises:
        DeclarationError: with what to declare.
    """
    if not isinstance(retractions, bool):
        raise DeclarationError(
            f"retractions={retractions!r} of keyed function {name!r} is no truth value",
            "use True or False.",
            operator=name,
            field="retractions",
            value=retractions,
        )
    if retractions and order != "arrival":
        raise DeclarationError(
            f"keyed function {name!r} has retractions=True and order={order!r}, in which it is called for the rows "
            "that stand, and never for one that is taken back",
            "leave retractions out, or use order='arrival'.",
            operator=name,
            field="retractions",
            value=retractions,
        )


def check_state(name: str, by: Iterable[str], schema: pa.Schema, *, retractions: bool = False) -> None:
    """Refuse a state field with the name of a key column or of something that every key has, or one that rounds.

    Raises:
        DeclarationError: with the names that are taken.
    """
    of_key = (*API, _CHANGE) if retractions else API
    taken = {column.lower() for column in (*of_key, *by)}
    for column in schema.names:
        check_column_name(column)
        if column.lower() in taken:
            raise DeclarationError(
                f"state field {column!r} of keyed function {name!r} has a name that is taken; taken are: "
                f"{', '.join((*of_key, *by))}.",
                "Rename it.",
                operator=name,
            )
        if not column.isidentifier():
            raise DeclarationError(
                f"state field {column!r} of keyed function {name!r} is no name in Python", "rename it.", operator=name
            )
    if "float" in (str(part) for part in _parts(schema)):
        raise DeclarationError(
            f"the state of keyed function {name!r} has a float, which is rounded whenever it is kept",
            "make it a double.",
            operator=name,
        )


def _parts(schema: pa.Schema) -> Iterator[pa.DataType]:
    """The types of the columns, and all that these are made of."""
    pending = [field.type for field in schema]
    while pending:
        kind = pending.pop()
        yield kind
        pending += [kind.field(place).type for place in range(kind.num_fields)]


def check_outputs(
    name: str, by: tuple[str, ...], outputs: Mapping[str, Iterable[str]], reserved: Iterable[str]
) -> None:
    """Refuse an output with the name of another table, or with a column that it has already.

    Raises:
        DeclarationError: with what is taken.
    """
    for to, columns in outputs.items():
        if to:
            check_name("side output", to)
        if to in reserved:
            raise DeclarationError(
                f"side output {to!r} of keyed function {name!r} has a name that is taken ({', '.join(sorted(reserved))}"
                ")",
                "rename it.",
                operator=name,
            )
        for column in columns:
            check_column_name(column)
            if column.lower() in {key.lower() for key in by}:
                raise DeclarationError(
                    f"output {to or 'result'!r} of keyed function {name!r} has the key {column!r}, which every output "
                    "has by itself",
                    "leave it out.",
                    operator=name,
                )
