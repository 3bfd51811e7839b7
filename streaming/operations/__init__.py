"""Operations on a pipeline besides running it: maintenance, repair, savepoints, bench."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.operations.bench import APPEND, JUDGE, PARSE, PLAN, TASKS, Bench, Stage, bench
    from streaming.operations.class_sharing import make_class_archive, make_class_archive_later
    from streaming.operations.cuts import lake_as_of, recomputed
    from streaming.operations.doctor import Ailment, examine, heal
    from streaming.operations.erasure import Erased, ErasurePreview, Person, erase, preview_erasure
    from streaming.operations.maintenance import Maintained, maintain, needs_maintenance
    from streaming.operations.rebuild import RebuildListener, rebuild
    from streaming.operations.redeliver import (
        DeliveredCurrent,
        Redelivered,
        begin_anew,
        deliver_current,
        redeliver,
        redeliver_days,
    )
    from streaming.operations.repair import Preview, preview, repair
    from streaming.operations.replays import Judgement, Replay, judge, replay
    from streaming.operations.restore import Restored, fork, restore, restore_to
    from streaming.operations.retained_days import RetainedDays, retained_days
    from streaming.operations.retention import Dropped, drop_old_days, planned_drop
    from streaming.operations.retract import RetractionPreview, RowChoice, find_retractable, preview_retraction, retract
    from streaming.operations.rollouts import Applied, Rollout, RolloutListener, RolloutPart, Volume, roll_out, rollout
    from streaming.operations.savepoint import Savepoint, drop_savepoint, kept_bytes, savepoint, savepoints
    from streaming.operations.undeclared import UndeclaredTable, drop, undeclared_tables

make_front(__name__)
