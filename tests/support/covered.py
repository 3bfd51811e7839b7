"""What `make coverage` says in the end: the lines that tests ran, per room and per module with lines that none did."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path, PurePosixPath


def report(path: Path) -> list[str]:
    """The lines of the report on a JSON file of coverage.py: modules by the lines that no test ran, then rooms."""
    lines, run = Counter[str](), Counter[str]()
    unrun: dict[str, int] = {}
    for module, measured in json.loads(path.read_text())["files"].items():
        numbers = measured["summary"]
        room = "/".join(PurePosixPath(module).parts[:2]) if module.count("/") > 1 else "streaming"
        lines[room] += numbers["num_statements"]
        run[room] += numbers["covered_lines"]
        if numbers["missing_lines"]:
            unrun[module] = numbers["missing_lines"]
    modules = sorted(unrun, key=lambda module: (-unrun[module], module))
    rooms = [f"{run[room] / max(1, lines[room]):6.1%} of {lines[room]:6,}  {room}" for room in sorted(lines)]
    all_run, all_lines = sum(run.values()), sum(lines.values())
    return [
        *(f"{unrun[module]:4} lines not run  {module}" for module in modules),
        *rooms,
        f"{all_run / max(1, all_lines):6.1%} of {all_lines:6,}  all",
    ]


if __name__ == "__main__":
    print("\n".join(report(Path("build/coverage/lines.json"))))
