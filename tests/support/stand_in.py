"""Stands in for a stream process where its supervisor alone is under test: the same pipes and signals, no Spark.

`python -m tests.support.stand_in PIPELINE SUPERVISOR LAST_WORDS PULSE`. It ends at once when it is told to, unless the
environment variable STAND_IN says otherwise: `hanging` drains for ever, `crashing` fails in a drain, `deaf` never ends,
`belated` ends itself two seconds after it was told to stop.
"""

import json
import math
import os
import signal
import sys
import time
from datetime import UTC, datetime

BEHAVIOUR = os.environ.get("STAND_IN", "")
phase, passed = "running", datetime.now(UTC)
gone_at = math.inf


def drain(*_: object) -> None:
    global phase
    phase = "draining"
    if BEHAVIOUR == "crashing":
        os.write(int(sys.argv[3]), json.dumps({"error": "the view is broken"}).encode())
        sys.exit(1)
    if BEHAVIOUR == "":
        sys.exit(0)


def stop(*_: object) -> None:
    global gone_at
    if BEHAVIOUR == "belated":
        gone_at = time.monotonic() + 2
    elif BEHAVIOUR != "deaf":
        sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, drain)
    signal.signal(signal.SIGTERM, stop)
    while True:
        if time.monotonic() > gone_at:
            os.write(int(sys.argv[3]), json.dumps({"error": "it did not end in time"}).encode())
            os.kill(os.getpid(), signal.SIGKILL)
        now = datetime.now(UTC)
        passed = now if phase == "running" else passed
        pulse = {"at": now.isoformat(), "phase": phase, "passed": passed.isoformat()}
        os.write(int(sys.argv[4]), json.dumps(pulse).encode() + b"\n")
        time.sleep(0.05)
