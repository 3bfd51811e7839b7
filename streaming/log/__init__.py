"""The event log: validate, stamp, append, and the reads of it."""

from streaming.log import validate
from streaming.log.batches import (
    Batch,
    OperatorCounts,
    Pin,
    add_unknown,
    archive_batches,
    archived_through,
    batches_after,
    clock_history,
    head,
    newest_late,
    note_erased,
    read_batches,
    version_after,
)
from streaming.log.ingest import (
    QUERY,
    Ingest,
    append_heartbeat,
    append_validated,
    commit_batch,
    next_kept_from,
    next_state,
    no_rows,
    stage_batch,
    stamp,
    widen_log,
)
from streaming.log.read import (
    REPAIRS,
    LogFiles,
    ever_rejected,
    place,
    read_log,
    rejected,
    repaired,
    require_log,
    valid,
    with_origin,
)
from streaming.log.retention import (
    check_as_of,
    dropped_before,
    dropped_days,
    dropped_number,
    dropped_rows,
    note_dropped,
    noted_before,
)
from streaming.log.validate import RowValidator
