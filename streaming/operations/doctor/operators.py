"""Operators and deliveries: whether they are where their logs are, by their declaration, and of one generation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from streaming.base import LogError, ViewError
from streaming.declare import Delivery, Operator, Pipeline
from streaming.deliveries import Cursor, ledger_of, outbox_of
from streaming.lake import Lake
from streaming.log import head
from streaming.operations.doctor.ailment import Ailment, made_again
from streaming.operators import generation_of, next_of, ready_generation, remove_next, runtime_of
from streaming.tables import delta


def examine_operator(lake: Lake, operator: Operator) -> Iterator[Ailment]:
    """One operator of the pipeline."""
    rebuild = made_again(operator)
    uri, runtime = lake.table(operator), runtime_of(operator, lake)
    opened = {spec.suffix: delta.open_table(lake.table(operator, spec.suffix)) for spec in operator.tables}
    if opened[""] is None:
        there = [lake.table(operator, suffix) for suffix, table in opened.items() if table is not None]
        if there:
            yield Ailment("table missing", uri, f"it is gone, and {', '.join(there)} of it is there", rebuild)
        return
    try:
        runtime.check()
    except ViewError as changed:
        yield Ailment("another declaration", uri, str(changed).partition(" Give ")[0], rebuild)
    for stream in operator.follows:
        newest, through = head(lake, stream), runtime.through()[stream.name]
        if newest is not None and through > newest.number:
            yield Ailment(
                "table ahead of the log",
                uri,
                f"it follows batch {through} of {stream.name}, whose log ends with batch {newest.number}: the log is "
                "an older copy, and the batches that come now would be passed over",
                f"bring the log of the same time back; or {rebuild}",
            )
    if any(generation_of(table) > generation_of(opened[""]) for table in opened.values()):
        yield Ailment(
            "switch unfinished",
            uri,
            "a process died while it put tables in place that were built anew; readers see the old ones whole",
            "nothing: the next run finishes it",
            note=True,
        )
    elif ready_generation(lake, operator) is None and delta.exists(lake.table(next_of(operator))):
        yield Ailment(
            "rebuild unfinished",
            lake.table(next_of(operator)),
            "tables that were being built anew are there, and nobody goes on with them",
            f"remove them; `tidemark rebuild {operator.name}` begins anew",
            partial(remove_next, lake, operator),
        )


def examine_delivery(lake: Lake, pipeline: Pipeline, delivery: Delivery) -> Iterator[Ailment]:
    """One delivery of the pipeline."""
    ledger, outbox = ledger_of(lake, delivery), outbox_of(delivery, lake)
    if ledger is None or ledger.of_generation != outbox.generation():
        return
    try:
        end = outbox.end(0)
    except LogError:
        # What a log lacks is told of where the log is examined.
        return
    if ledger.cursor > Cursor(end):
        yield Ailment(
            "delivery ahead of its table",
            lake.table(delivery, "delivered"),
            f"it has delivered up to {ledger.unit}, and what it delivers ends at {end}: the table is an older copy, "
            "and what comes now would never be delivered",
            f"bring the table of the same time back; or `tidemark redeliver {pipeline.name} {delivery.name} --all`",
        )
