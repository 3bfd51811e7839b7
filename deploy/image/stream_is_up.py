#!/usr/bin/env python3
"""A health check of the stream named on the command line: the exit code is 1 where it is not up.

`tidemark status` itself ends with 0 whenever it could look, however the streams are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

DOWN = ("failed", "stopped")
"""The states in which nothing runs and nothing will start by itself."""


def problem(document: dict[str, Any], name: str) -> str | None:
    """The problem of the stream, by what `tidemark status --json` printed; None where it is up."""
    (pipeline,) = (each for each in document["pipelines"] if each["pipeline"] == name)
    return f"{name} is {pipeline['state']}: {pipeline['why']}" if pipeline["state"] in DOWN else None


def main() -> None:
    """Look once, and exit accordingly."""
    if len(sys.argv) != 2:
        sys.exit("usage: stream-is-up PIPELINE")
    name = sys.argv[1]
    looked = subprocess.run(["tidemark", "status", name, "--json"], stdout=subprocess.PIPE, check=False)
    if looked.returncode != 0:
        sys.exit(looked.returncode)
    sys.exit(problem(json.loads(looked.stdout), name))


if __name__ == "__main__":
    main()
