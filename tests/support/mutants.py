"""What `make mutate` says in the end: the share of mutants that tests caught, per module, and those that survived."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

_CAUGHT = frozenset({1, 3, -24, 24, -9, 36, 152, 255})
"""Exit codes of a test run that noticed: failed tests, or no end."""


def report(folder: Path) -> list[str]:
    """The lines of the report on what mutmut left in `folder`: a JSON file per module, with an exit code per mutant."""
    caught, total, survivors = Counter[str](), Counter[str](), list[str]()
    for meta in sorted(folder.rglob("*.py.meta")):
        module = str(meta.relative_to(folder)).removesuffix(".meta")
        for mutant, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            total[module] += 1
            caught[module] += code in _CAUGHT
            if code not in _CAUGHT:
                survivors.append(mutant)
    lines = [f"{caught[module]:4} of {total[module]:4} caught  {module}" for module in sorted(total)]
    share = sum(caught.values()) / max(1, sum(total.values()))
    return [*(f"survived: {mutant}" for mutant in survivors), *lines, f"{share:.1%} of all mutants caught"]


if __name__ == "__main__":
    print("\n".join(report(Path("mutants"))))
