"""Functions with state and timers per key, as folds over the log whose state is a table."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.keyed.calls import ROW, Call, calls_of
    from streaming.keyed.corrections import (
        TimedRow,
        current_results,
        emitted_over,
        late_sessions,
        pinned_rules,
        read_corrections,
        unstamped,
    )
    from streaming.keyed.count_windows import count_window
    from streaming.keyed.fold import NEVER, Fold, Key, Output
    from streaming.keyed.latest import latest
    from streaming.keyed.library import (
        CountEvictor,
        CountTrigger,
        DeltaEvictor,
        EventTimeTrigger,
        Evictor,
        NeverTrigger,
        PurgingTrigger,
        RepeatTrigger,
        TimeEvictor,
        Trigger,
        ValueTrigger,
        absence,
        bucket_of,
        deduplicated,
        even_shares,
        flat_mapped,
        followed_by,
        iterated,
        marker_window,
        not_followed_by,
        reduced,
        rolling,
        top,
        triggered_window,
    )
    from streaming.keyed.migration import migrations_of
    from streaming.keyed.rules import PinnedRules, Pins, RuleHistory, rows_of_control
    from streaming.keyed.state_table import (
        BUCKETS,
        DUE,
        HASH,
        SOURCE,
        OpenBucket,
        StateTable,
        StoredState,
        hash_of,
        in_buckets,
        marks,
    )
    from streaming.keyed.steps import NEWEST_INSTANT
    from streaming.keyed.tasks import BucketFile

make_front(__name__)
