"""The event log: validate, stamp, append, and the reads of it."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.log import validate
    from streaming.log.batches import (
        QUERY,
        Batch,
        OperatorCounts,
        add_unknown,
        archive_batches,
        archived_through,
        batches_after,
        check_as_of,
        clock_history,
        dropped_before,
        dropped_days,
        dropped_number,
        dropped_rows,
        head,
        is_dropping,
        newest_batch,
        newest_late,
        note_dropped,
        note_erased,
        noted_before,
        operator_columns,
        read_batches,
        told_batches,
        version_after,
        with_changes,
    )
    from streaming.log.declarations import declaration_changes_of, note_declaration, noted_pipeline, refused_source
    from streaming.log.ingest import (
        Ingest,
        append_heartbeat,
        append_retraction,
        append_validated,
        commit_batch,
        log_schema,
        next_kept_from,
        next_state,
        places_of_ingest,
        stage_batch,
        stamp,
        widen_log,
    )
    from streaming.log.masked_rows import RETURNING, kept_back, returning, with_values_of_then
    from streaming.log.masking import masked
    from streaming.log.places import Place
    from streaming.log.read import (
        OF_LOGS,
        REPAIRS,
        RETRACTED_FROM,
        RETRACTION,
        RETRACTIONS,
        RETRACTS,
        LogFiles,
        about_log,
        came,
        can_retract,
        ever_rejected,
        first_retraction,
        identity_of_row,
        newest_retraction,
        place,
        read_log,
        rejected,
        repaired,
        require_log,
        retraction_of,
        sign_of_row,
        standing,
        valid,
        warned,
        with_origin,
    )
    from streaming.log.retractions import Retraction, retractions
    from streaming.log.validate import RowValidator

make_front(__name__)
