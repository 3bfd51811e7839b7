"""How hypothesis tries laws that need no Spark: other examples in every run, and first those that ever failed here."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = min(5_000, 50 * int(os.environ.get("TIDEMARK_LAW_CASES", "20")))
"""A thousand by default, 200 by `make test`, and 5,000 by `make prove`."""

_DATABASE = Path(__file__).parents[2] / ".hypothesis" / "examples"

# Said in full, as hypothesis has other defaults where it believes to be run by CI: the same examples for ever.
settings.register_profile(
    "tidemark",
    derandomize=False,
    database=DirectoryBasedExampleDatabase(_DATABASE),
    print_blob=True,
    # How long an example takes says more about the machine than about the code.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tidemark")

many = settings(max_examples=EXAMPLES)
