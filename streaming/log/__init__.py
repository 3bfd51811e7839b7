"""The event log: validate, stamp, append, and the reads of it."""

from streaming.log import validate
from streaming.log.append import append_batch
from streaming.log.archive import archived_through
from streaming.log.batch import Batch
from streaming.log.batches import (
    archive_batches,
    batches_after,
    head,
    newest_late,
    note_erased,
    read_batches,
    version_after,
)
from streaming.log.clock_history import clock_history
from streaming.log.files import LogFiles
from streaming.log.heartbeat import append_heartbeat
from streaming.log.ingest import QUERY, Ingest, append_validated, next_kept_from, next_state, no_rows, stamp, widen_log
from streaming.log.origin import REPAIRS, place, with_origin
from streaming.log.pins import Pin
from streaming.log.read import ever_rejected, read_log, rejected, repaired, require_log, valid
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
from streaming.log.summary import OperatorCounts
from streaming.log.unknown import add_unknown
from streaming.log.validate import RowValidator
