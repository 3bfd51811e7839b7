"""Commands that a user types, run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def printed(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command to its good end; what it has printed, errors among it."""
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout}"
    return ended.stdout
