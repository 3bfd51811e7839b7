"""What the benchmarks rest on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.processes import code_of


def test_a_version_that_is_measured_runs_its_own_code_wherever_it_is_started(tmp_path: Path) -> None:
    for project in ("measured", "started_in"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "version.py").write_text(f"print({project!r})")
    process = subprocess.run(
        [sys.executable, "-m", "version"],
        env={**os.environ, **code_of(tmp_path / "measured")},
        cwd=tmp_path / "started_in",
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == "measured"
