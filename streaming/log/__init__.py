"""The event log: validate, stamp, append, and the reads of it."""

from streaming.log import validate
from streaming.log.append import commit_batch, stage_batch
from streaming.log.batch import Batch, OperatorCounts, Pin
from streaming.log.batches import (
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
from streaming.log.files import LogFiles
from streaming.log.ingest import (
    QUERY,
    Ingest,
    append_heartbeat,
    append_validated,
    next_kept_from,
    next_state,
    no_rows,
    stamp,
    widen_log,
)
from streaming.log.read import (
    REPAIRS,
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
    kept_from,
    note_dropped,
    noted_before,
)
from streaming.log.unknown import add_unknown
from streaming.log.validate import RowValidator
