"""Small pieces made of keyed functions: triggers and evictors, patterns, rolling aggregates, duplicates, absence.

Tables record by which function they were made, with its module: no function or value of a declaration here moves to
another module, nor do `count_window` and `latest` beside it.
"""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.keyed.library.absence import absence
    from streaming.keyed.library.buckets import bucket_of, even_shares
    from streaming.keyed.library.deduplicated import deduplicated
    from streaming.keyed.library.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
    from streaming.keyed.library.functional import flat_mapped, reduced
    from streaming.keyed.library.iteration import iterated
    from streaming.keyed.library.marker_windows import marker_window
    from streaming.keyed.library.patterns import followed_by, not_followed_by
    from streaming.keyed.library.rolling import rolling
    from streaming.keyed.library.top import top
    from streaming.keyed.library.triggered_windows import triggered_window
    from streaming.keyed.library.triggers import (
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        PurgingTrigger,
        RepeatTrigger,
        Trigger,
        ValueTrigger,
    )

make_front(__name__)
