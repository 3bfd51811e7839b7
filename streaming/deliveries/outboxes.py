"""Finds what a delivery reads by what it is of."""

from __future__ import annotations

from functools import singledispatch

from streaming.base import ORIGIN, DeclarationError
from streaming.declare import ELEMENT, Delivery, Enriched, Joined, Keyed, Operator, Selected, Stream, TwoSided, Windowed
from streaming.deliveries.changes import ChangesOutbox
from streaming.deliveries.changing_joins import ChangingJoin
from streaming.deliveries.changing_keyed import ChangingKeyed
from streaming.deliveries.changing_two_sided import ChangingTwoSided
from streaming.deliveries.changing_views import ChangingView
from streaming.deliveries.enrichments import EnrichmentOutbox
from streaming.deliveries.keyed import KeyedOutbox
from streaming.deliveries.logs import LogOutbox
from streaming.deliveries.outbox import Outbox
from streaming.deliveries.refused import RefusedOutbox
from streaming.deliveries.results import FirstOutbox
from streaming.deliveries.rows import RowsOutbox
from streaming.deliveries.two_sided import TwoSidedOutbox
from streaming.lake import Lake


def outbox_of(delivery: Delivery, lake: Lake) -> Outbox:
    """What the delivery reads.

    Raises:
        DeclarationError: it is of an operator of a kind for which no outbox is registered with `outbox_for`.
    """
    return outbox_for(delivery.of, delivery, lake)


@singledispatch
def outbox_for(of: Stream | Operator | Delivery, delivery: Delivery, lake: Lake) -> Outbox:
    """The outbox of a delivery of `of`; `outbox_for.register` adds a kind of operator."""
    raise DeclarationError(
        f"delivery {delivery.name!r} is of {of.name!r}, a {type(of).__name__}, which nothing here can deliver; "
        "register an Outbox for that type with `outbox_for.register`."
    )


@outbox_for.register
def _(of: Stream, delivery: Delivery, lake: Lake) -> Outbox:
    return LogOutbox(lake, delivery)


@outbox_for.register
def _(of: Delivery, delivery: Delivery, lake: Lake) -> Outbox:
    return RefusedOutbox(lake, delivery, of)


@outbox_for.register
def _(of: Windowed, delivery: Delivery, lake: Lake) -> Outbox:
    match delivery.what:
        case "late":
            return LogOutbox(lake, delivery)
        case "current":
            return ChangesOutbox(lake, delivery, ChangingView(lake, delivery, of))
    return FirstOutbox(lake, delivery, of)


@outbox_for.register
def _(of: Keyed, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, ChangingKeyed(lake, delivery, of))
    return KeyedOutbox(lake, delivery, of)


@outbox_for.register
def _(of: Selected, delivery: Delivery, lake: Lake) -> Outbox:
    return RowsOutbox(lake, delivery, of, (ORIGIN, *([ELEMENT] if of.makes_many(delivery.output) else [])))


@outbox_for.register
def _(of: Joined, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, ChangingJoin(lake, delivery, of))
    return RowsOutbox(lake, delivery, of, (ORIGIN,))


@outbox_for.register
def _(of: TwoSided, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, ChangingTwoSided(lake, delivery, of))
    return TwoSidedOutbox(lake, of)


@outbox_for.register
def _(of: Enriched, delivery: Delivery, lake: Lake) -> Outbox:
    return EnrichmentOutbox(lake, delivery, of)
