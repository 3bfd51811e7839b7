"""The quality room's public API: suites run on exact versions, verdicts are stored, and a gate reads them."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from quality.engine import load_ahead
    from quality.errors import GateClosed, QualityError, Reason, SuiteError
    from quality.expectations import (
        Expectation,
        Suite,
        always,
        fresh,
        mostly_absent,
        nothing_from,
        of_type,
        of_types,
        unique,
        usual,
    )
    from quality.find import (
        judged_tables,
        operators_read,
        role_of_corrections,
        role_of_log,
        role_of_updates,
        roles_read,
        streams_read,
        suites_for,
    )
    from quality.gate import open_gate, reasons_of, reasons_to_close, warnings_of, warnings_on
    from quality.judging import judge, judge_frame, judge_missing, judge_once, judge_table
    from quality.metrics import GATE_INSTRUMENTS, GateCollector
    from quality.pins import Pin, Pins, pin
    from quality.runner import ExpectationResult, run_suite
    from quality.verdicts import Subject, Verdict, all_verdicts, store_verdicts, table_id, verdicts_for

make_front(__name__)
