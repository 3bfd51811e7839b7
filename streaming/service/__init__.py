"""One process per pipeline: a drain, or a stream that runs for months under its supervisor."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.service import lease, progress_table
    from streaming.service.alerts import ALERTS, AlertStatus, evaluate
    from streaming.service.delivering import Delivering
    from streaming.service.drain import drain, drain_unpaused
    from streaming.service.freshness import is_fresh, lateness_texts
    from streaming.service.lease import (
        Holder,
        Lease,
        LeasePlace,
        has_left_record,
        holder_of,
        rewriter_of,
        rewriting,
        take_lease,
    )
    from streaming.service.lineage import JobCounts, lineage_of
    from streaming.service.lineage_jobs import corrections_of, rebuild_of
    from streaming.service.metrics import INSTRUMENTS, Instrument, Sample, StreamCollector, families, samples
    from streaming.service.observer import Observer
    from streaming.service.overview import Overview, look, request
    from streaming.service.paused_operators import begins_anew
    from streaming.service.progress import Measure, shown_on, skew_of
    from streaming.service.progress_table import forget_progress, read_progress
    from streaming.service.query_errors import await_queries, explain_known, explained, ingest_query
    from streaming.service.receivers import receive
    from streaming.service.reporter import sums, together
    from streaming.service.run import Run
    from streaming.service.serving import LatestValues, serve
    from streaming.service.status import (
        Action,
        ControlFolder,
        ProcessStatus,
        QueryStatus,
        ReceiverStatus,
        SupervisorStatus,
    )
    from streaming.service.supervisor import Supervisor, supervise
    from streaming.service.usual import HOUR, JudgedHours, judge_hours
    from streaming.service.watch import Watch

make_front(__name__)
