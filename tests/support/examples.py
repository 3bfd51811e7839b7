"""How many examples hypothesis tries laws on that need no Spark."""

from __future__ import annotations

import os

from hypothesis import settings

EXAMPLES = max(1_000, 10 * int(os.environ.get("TIDEMARK_LAW_CASES", "20")))
"""A thousand by default, and 5,000 by `make prove`."""

many = settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None)
"""The same ones in every run."""

others_each_time = settings(max_examples=EXAMPLES, deadline=None)
"""Other ones in every run, and those first that failed before."""
