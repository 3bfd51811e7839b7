"""The contract of what runs an operator, and how it is found."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.operators.analyses import analyse, analysis_of, places_in
    from streaming.operators.as_of import CUT, LogAtVersion, PinnedTables, check_followed, version_read
    from streaming.operators.backlog import (
        Backlog,
        DueDays,
        LateCount,
        UpstreamLag,
        Waiting,
        followed_upstream,
        plan_corrections,
        settled_at,
        upstream_lags,
    )
    from streaming.operators.comparison import Finding, Law, are_close, comparable, differing_rows
    from streaming.operators.declaration import (
        about_table,
        check_declaration,
        check_retractions,
        create_table,
        declaration_changes,
        declaration_properties,
        has_published,
    )
    from streaming.operators.effects import (
        ADDED_ROWS,
        FROM,
        MOST_PARTS,
        TAKEN_BACK,
        UNTIL,
        ChangedWindow,
        Coming,
        Effect,
        at_batch,
        counted_by_sign,
        effect_of_rows,
        said_by_sign,
        words_of,
    )
    from streaming.operators.progress import (
        FORGOTTEN,
        NEWEST_BATCH,
        REVISION_OF,
        Corrected,
        FilterCounts,
        PendingDay,
        Progress,
        Replaced,
        built_anew,
        corrected_numbers,
        filter_counts,
        first_number,
        generation_of,
        kept_days,
        last_superseded,
        moved_on,
        open_beside,
        open_side,
        property_of_kept,
        require_table,
        revision_followed,
        versions_now,
    )
    from streaming.operators.runtime import (
        Batches,
        OperatorRuntime,
        Outputs,
        StateCleaner,
        Step,
        SteppedRuntime,
        Steps,
        Written,
        can_be_compared,
        check_can_rebuild,
        check_whole,
        clean_state,
        counts_of,
        each_day,
        frame,
        in_pieces,
        of_kept_days,
        rows_per_day,
        runtime_of,
        same_generation,
        whole_in,
        whole_since,
    )
    from streaming.operators.signed import (
        IDENTITY,
        are_net,
        identity_in,
        net,
        sign_in,
        signed_from,
        signs,
        standing_among,
    )
    from streaming.operators.switching import (
        has_caught_up,
        make_ready,
        next_of,
        note_caught_up,
        ready_generation,
        remove_next,
        switch,
    )

make_front(__name__)
