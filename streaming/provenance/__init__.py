"""Why a result is what it is: the rows that made it, found in the logs, and the result computed again from these."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.provenance.answer import (
        Change,
        Evidence,
        InputRow,
        PinInForce,
        Question,
        RejectedRow,
        Verdict,
        What,
        Why,
        compared,
        evidence_of,
    )
    from streaming.provenance.explanation import why

make_front(__name__)
