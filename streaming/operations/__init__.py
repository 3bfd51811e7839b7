"""What is done to a pipeline besides running it: maintenance, repair, bench."""

from streaming.operations.bench import APPEND, JUDGE, PARSE, PLAN, Bench, Stage, bench
from streaming.operations.class_sharing import make_class_archive
from streaming.operations.left import LeftTable, drop, left_tables
from streaming.operations.maintenance import Maintained, maintain, needs_maintenance
from streaming.operations.rebuild import RebuildListener, rebuild
from streaming.operations.redeliver import Redelivered, begin_anew, redeliver
from streaming.operations.repair import ChangedWindow, Preview, preview, repair

__all__ = [
    "APPEND",
    "JUDGE",
    "PARSE",
    "PLAN",
    "Bench",
    "ChangedWindow",
    "LeftTable",
    "Maintained",
    "Preview",
    "RebuildListener",
    "Redelivered",
    "Stage",
    "begin_anew",
    "bench",
    "drop",
    "left_tables",
    "maintain",
    "make_class_archive",
    "needs_maintenance",
    "preview",
    "rebuild",
    "redeliver",
    "repair",
]
