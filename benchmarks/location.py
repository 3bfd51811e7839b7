"""The time that Dagster takes to load the code location, over the number of pipelines in it.

`python -m benchmarks.location FOLDER` writes pipelines into `FOLDER/many`, each with a stream of twelve columns, three
views, and expectations of its own, and loads them as a code server does, each time in a process of its own. The demand:
ten of them take less than 5 s more than one. The record is `FOLDER/location.md`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.demands import PROJECT, conclude

PIPELINES = (1, 10, 30)
_MORE_SECONDS, _TIMES = 5.0, 5
_PIPELINE = """
from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Sliding, Stream, Tumbling, Windowed, agg

stream = Stream(
    name="{name}",
    description="Orders of shop {name}.",
    source=Files("landing/{name}"),
    format=Json(
        "order_id string not null, customer string comment 'Who has ordered.', country string, sku string, "
        "amount decimal(12, 2), discount double, quantity int, express boolean, ordered_at timestamp, note string"
    ),
    event_time="ordered_at",
    clock=BoundedOutOfOrderness("15 minutes", max_ahead="1 day"),
    rules=(Rule("amount_positive", "amount > 0"), Rule("quantity_positive", "quantity > 0")),
    derived={{"net": "amount * (1 - discount)", "price": "amount / quantity"}},
)
_values = {{
    "orders": agg.count(),
    "express": agg.count("express"),
    "revenue": agg.sum("amount"),
    "mean_price": agg.mean("price"),
    "largest": agg.max_by("order_id", "amount"),
}}
pipeline = Pipeline(
    stream,
    (
        Windowed("{name}_hourly", stream, Tumbling("1 hour"), _values, by=("country",)),
        Windowed("{name}_daily", stream, Tumbling("1 day"), _values, by=("country", "sku")),
        Windowed("{name}_trailing", stream, Sliding("1 hour", "15 minutes"), _values, late="drop"),
    ),
)
"""
_SUITE = """
from quality import always

_REVENUE = (always("revenue_positive", "revenue > 0", "what was sold was paid for"),)
expectations = {{"{name}_hourly": _REVENUE, "{name}_daily": _REVENUE}}
"""
_LOAD = """
import time
started = time.perf_counter()
import dagster as dg
from platform_assets.definitions import defs
dg.Definitions.validate_loadable(defs)
keys = defs.resolve_asset_graph().get_all_asset_keys()
print(time.perf_counter() - started, time.process_time(), len(keys))
"""


def write_pipelines(folder: Path, number: int) -> None:
    """Write that many pipelines, and a suite for each, as the packages `many.pipelines` and `many.suites`."""
    for package, source in (("pipelines", _PIPELINE), ("suites", _SUITE)):
        target = folder / "many" / package
        target.mkdir(parents=True, exist_ok=True)
        (target / "__init__.py").touch()
        for module in target.glob("shop_*.py"):
            module.unlink()
        for index in range(1, number + 1):
            (target / f"shop_{index}.py").write_text(source.format(name=f"shop_{index}"))
    (folder / "many" / "__init__.py").touch()


def load(folder: Path) -> tuple[float, float, int]:
    """Seconds from the first import to a valid graph, seconds of CPU, and the number of assets."""
    environment = {
        **os.environ,
        "TIDEMARK_HOME": str(folder / "lake"),
        "TIDEMARK_PIPELINES": "many.pipelines",
        "TIDEMARK_SUITES": "many.suites",
        "TIDEMARK_REPORTS": "many",
        "PYTHONPATH": f"{PROJECT}{os.pathsep}{folder}",
    }
    command = [sys.executable, "-c", _LOAD]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    seconds, cpu, assets = done.stdout.split()
    return float(seconds), float(cpu), int(assets)


def main(folder: Path) -> None:
    """Measure, print and write the record; exit 1 where the demand does not hold."""
    folder.mkdir(parents=True, exist_ok=True)
    medians: dict[int, float] = {}
    rows = ["| pipelines | assets | seconds, median | of CPU |", "|---|---|---|---|"]
    for number in PIPELINES:
        write_pipelines(folder, number)
        load(folder)
        loads = [load(folder) for _ in range(_TIMES)]
        medians[number] = statistics.median(seconds for seconds, _, _ in loads)
        cpu = statistics.median(cpu for _, cpu, _ in loads)
        rows.append(f"| {number} | {loads[0][2]} | {medians[number]:.1f} | {cpu:.1f} |")
    more = medians[10] - medians[1]
    demand = (
        f"ten pipelines load in less than {_MORE_SECONDS:g} s more than one",
        f"{more:.1f} s",
        more < _MORE_SECONDS,
    )
    conclude(folder / "location.md", [demand], "\n".join(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
