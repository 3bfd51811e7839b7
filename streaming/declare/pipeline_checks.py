"""What a pipeline may be given."""

from __future__ import annotations

from collections.abc import Sequence

from streaming.base import DeclarationError, check_type
from streaming.declare.delivery import Delivery
from streaming.declare.operator import Operator
from streaming.declare.receiver import Receiver
from streaming.declare.stream import Stream


def check_held(
    stream: object, views: object, streams: object, operators: object, deliveries: object, receivers: object
) -> None:
    """Refuse what is no stream, operator, delivery or receiver, and one that is given where several are asked for.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    if stream is not None:
        check_type("the first value of Pipeline", stream, Stream, "a Stream, or streams=(...) for several")
    several = (
        *(("views", views, Operator), ("streams", streams, Stream), ("operators", operators, Operator)),
        *(("deliveries", deliveries, Delivery), ("receivers", receivers, Receiver)),
    )
    for what, values, kind in several:
        noun = kind.__name__.lower()
        if isinstance(values, kind):
            raise DeclarationError(
                f"{what} is the {noun} {values.name!r}; write a tuple of one: {what}=({values.name},)."
            )
        advice = f"a tuple of {_plural(noun)}, also for one of them"
        check_type(what, values, (tuple, list), advice)
        for value in values if isinstance(values, tuple | list) else ():
            check_type(f"an entry of {what}", value, kind, advice)


def check_deliveries(
    name: str, streams: Sequence[Stream], operators: Sequence[Operator], deliveries: Sequence[Delivery]
) -> None:
    """Refuse a delivery of what the pipeline does not have, and one whose tables are somebody else's.

    Raises:
        DeclarationError: with what the pipeline has, or whose name is taken.
    """
    tables = {each.table_name(suffix) for each in operators for suffix in ("", *each.reserved_suffixes)}
    for delivery in deliveries:
        if delivery.of not in (*streams, *operators, *deliveries):
            names = [each.name for each in streams] + [each.name for each in operators]
            names += [each.name for each in deliveries if each is not delivery]
            held = ", ".join(map(repr, names))
            raise DeclarationError(
                f"delivery {delivery.name!r} is of {delivery.of.name!r}, which pipeline {name!r} does not have as it "
                f"is declared there; the pipeline has {held}. Add it to the pipeline, or deliver one of these."
            )
        others = [each.name for each in deliveries] + [each.name for each in operators]
        others += [stream.name for stream in streams]
        own = {delivery.table_name(suffix) for suffix in delivery.reserved_suffixes}
        if others.count(delivery.name) > 1 or own & {*tables, *others}:
            raise DeclarationError(
                f"delivery name {delivery.name!r} of pipeline {name!r} is taken; every stream, view and delivery needs "
                "a name of its own, also with the suffixes of their tables. Rename it."
            )


def check_receivers(
    name: str,
    streams: Sequence[Stream],
    operators: Sequence[Operator],
    deliveries: Sequence[Delivery],
    receivers: Sequence[Receiver],
) -> None:
    """Refuse a receiver for, or steered by, what the pipeline does not have, and one whose name is somebody else's.

    Raises:
        DeclarationError: with what the pipeline has, or whose name is taken.
    """
    held = ", ".join([repr(stream.name) for stream in streams] + [repr(each.name) for each in operators])
    taken = [each.name for each in streams] + [each.name for each in operators]
    taken += [each.name for each in deliveries] + [each.name for each in receivers]
    taken += [each.table_name(suffix) for each in operators for suffix in each.reserved_suffixes]
    taken += [each.table_name(suffix) for each in deliveries for suffix in each.reserved_suffixes]
    for receiver in receivers:
        of = None if receiver.subscriptions is None else receiver.subscriptions.of
        for what, value in (("lands for", receiver.into), ("asks for what is in", of)):
            if value is not None and value not in (*streams, *operators):
                raise DeclarationError(
                    f"receiver {receiver.name!r} {what} {value.name!r}, which pipeline {name!r} does not have as it is "
                    f"declared there; the pipeline has {held}. Add it to the pipeline, or name one of these."
                )
        tables = [receiver.table_name(suffix) for suffix in receiver.reserved_suffixes]
        if taken.count(receiver.name) > 1 or any(table in taken for table in tables):
            raise DeclarationError(
                f"receiver name {receiver.name!r} of pipeline {name!r} is taken; every stream, view, delivery and "
                "receiver needs a name of its own, also with the suffixes of their tables. Rename it."
            )


def _plural(noun: str) -> str:
    return "deliveries" if noun == "delivery" else f"{noun}s"
