"""Those who read a stream, and would not go on as they are if a column of it were another one, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from streaming.base import TidemarkError, names_in
from streaming.contracts import Difference, ddl_of
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.stream import Stream


@dataclass(frozen=True)
class AffectedReader:
    """One that reads what would change: `view 'takings'`, of a pipeline, and why it is affected."""

    what: str
    name: str
    pipeline: str
    why: str
    operator: Operator | None = field(default=None, compare=False, repr=False)


def affected_readers(pipelines: Iterable[Pipeline], stream: Stream, difference: Difference) -> Iterator[AffectedReader]:
    """The parts of declared pipelines that a difference of a column concerns.

    An operator is concerned if it cannot be declared any more, or if one of its columns is made of the changed one;
    then also what follows it, and what is delivered of it.
    """
    if not difference.column or not (difference.is_gone or difference.type):
        return
    every = [*pipelines]
    changed, why_not = _changed(stream, difference)
    if why_not:
        yield AffectedReader("stream", stream.name, _pipeline_of(every, stream), why_not)
    concerned: list[Operator] = []
    for pipeline in every:
        for delivery in pipeline.deliveries:
            if delivery.of == stream:
                yield AffectedReader("delivery", delivery.name, pipeline.name, "it delivers all columns of the stream")
        for operator in pipeline.operators:
            why = _why_concerned(operator, stream, changed, difference) if stream in operator.reads else ""
            if why:
                concerned.append(operator)
                yield AffectedReader(operator.kind_name, operator.name, pipeline.name, why, operator)
    yield from _downstream(every, concerned)


def _downstream(pipelines: list[Pipeline], concerned: list[Operator]) -> Iterator[AffectedReader]:
    """Whatever is made of operators that are concerned, however far away."""
    told = {id(each) for each in concerned}
    for of in concerned:
        for pipeline in pipelines:
            for delivery in pipeline.deliveries:
                if delivery.of == of:
                    yield AffectedReader("delivery", delivery.name, pipeline.name, f"it delivers {of.name!r}")
            for operator in pipeline.operators:
                follows = [each for stream in operator.reads for each, _ in stream.source.follows]
                if id(operator) not in told and of in (*follows, *operator.dimensions):
                    told.add(id(operator))
                    concerned.append(operator)
                    why = f"it follows {of.name!r}"
                    yield AffectedReader(operator.kind_name, operator.name, pipeline.name, why, operator)


def _changed(stream: Stream, difference: Difference) -> tuple[Stream | None, str]:
    """The stream with another type of the column, or without it and what of the stream needs it.

    Besides, why it cannot be declared with all that it has; None where there can be no such stream, or where its format
    is not made of a schema.
    """
    columns = tuple(
        replace(column, type=difference.type or column.type) if column.name == difference.column else column
        for column in stream.format.columns
        if not (difference.is_gone and column.name == difference.column)
    )
    format_: Any = stream.format
    more = {}
    if hasattr(format_, "fields"):
        more["fields"] = {name: field for name, field in format_.fields.items() if name != difference.column}
    try:
        changed = replace(format_, schema=ddl_of(columns), **more)
    except TypeError:
        return None, ""
    try:
        return replace(stream, format=changed), ""
    except TidemarkError as error:
        why = _first_line(error)
    rules = tuple(rule for rule in stream.rules if difference.column not in names_in(rule.condition))
    derived = {name: sql for name, sql in stream.derived.items() if difference.column not in stream.made_of[name]}
    try:
        return replace(stream, format=changed, rules=rules, derived=derived), why
    except TidemarkError:
        return None, why


def _why_concerned(operator: Operator, stream: Stream, changed: Stream | None, difference: Difference) -> str:
    if changed is not None:
        try:
            _with(operator, stream, changed)
        except TidemarkError as error:
            return _first_line(error)
        except TypeError:
            # Made by a function of its own, which asks for something else than its fields.
            pass
    origin = (stream.name, difference.column)
    made = [spec.name for spec in operator.columns_of() if origin in spec.of]
    if not made:
        return ""
    shown = f"{', '.join(made[:5])}{' and more' if len(made) > 5 else ''}"
    return f"{shown} of it {'is' if len(made) == 1 else 'are'} made of the column"


def _with(value: Any, old: Stream, new: Stream) -> Any:
    """A declaration with another stream in the place of one, wherever it stands in it."""
    if isinstance(value, Stream):
        return new if value == old else value
    if isinstance(value, tuple):
        return tuple(_with(each, old, new) for each in value)
    if isinstance(value, Mapping):
        return {name: _with(each, old, new) for name, each in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    values = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    changed = {name: _with(of, old, new) for name, of in values.items()}
    return replace(value, **changed) if changed != values else value


def _pipeline_of(pipelines: list[Pipeline], stream: Stream) -> str:
    return next((pipeline.name for pipeline in pipelines if stream in pipeline.streams), "")


def _first_line(error: TidemarkError) -> str:
    return " ".join(str(error).removesuffix(error.next_step).rstrip("; ").split())
