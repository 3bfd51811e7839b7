"""What a pipeline may be given."""

from __future__ import annotations

from streaming.base import DeclarationError, check_type
from streaming.declare.operator import Operator
from streaming.declare.stream import Stream


def check_held(stream: object, views: object, streams: object, operators: object) -> None:
    """Refuse what is no stream or operator, and one that is given where several are asked for.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    if stream is not None:
        check_type("the first value of Pipeline", stream, Stream, "a Stream, or streams=(...) for several")
    several = (("views", views, Operator), ("streams", streams, Stream), ("operators", operators, Operator))
    for what, values, kind in several:
        noun = kind.__name__.lower()
        if isinstance(values, kind):
            raise DeclarationError(
                f"{what} is the {noun} {values.name!r}; write a tuple of one: {what}=({values.name},)."
            )
        advice = f"a tuple of {noun}s, also for one of them"
        check_type(what, values, (tuple, list), advice)
        for value in values if isinstance(values, tuple | list) else ():
            check_type(f"an entry of {what}", value, kind, advice)
