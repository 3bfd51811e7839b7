"""Assets of one's own read tables of the lake by Dagster's resource and IO manager."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from platform_assets.resources import LakeIOManager, LakeResource
from streaming.base import ReadError
from streaming.lake import Lake
from streaming.reading import Rows
from tests.support.written_lake import write_flights

CURRENT = dg.AssetKey(["flights", "departures_by_origin_current"])
TABLES = [dg.AssetSpec(key) for key in (CURRENT, ["flights", "departures_by_origin"], ["elsewhere"])]
SEEN: dict[str, object] = {}


@dg.asset(ins={"flights": dg.AssetIn(key=CURRENT, input_manager_key="tidemark")})
def busiest(flights: pd.DataFrame) -> None:
    SEEN["pandas"] = flights.sort_values("flights").iloc[-1]["origin"]


@dg.asset(ins={"flights": dg.AssetIn(key=CURRENT, input_manager_key="tidemark", metadata={"where": "flights > 2"})})
def busy(flights: pa.Table) -> None:
    SEEN["arrow"] = flights.num_rows


@dg.asset(
    ins={
        "flights": dg.AssetIn(
            key=["flights", "departures_by_origin"], input_manager_key="tidemark", metadata={"what": "first"}
        )
    }
)
def first(flights: Rows, lake: LakeResource) -> None:
    SEEN["rows"] = len(flights), len(lake.read("flights", where="flights = 7"))


@dg.asset(ins={"flights": dg.AssetIn(key=["elsewhere"], input_manager_key="tidemark")})
def of_another(flights: Rows) -> None: ...


@dg.asset(io_manager_key="tidemark")
def written() -> int:
    return 1


def resources(folder: Path) -> dict[str, object]:
    lake = LakeResource(home=write_flights(Lake(str(folder))).root)
    return {"lake": lake, "tidemark": LakeIOManager(lake=lake)}


def test_an_input_comes_as_what_it_is_annotated_with(tmp_path: Path) -> None:
    assert dg.materialize([busiest, busy, first, *TABLES], resources=resources(tmp_path)).success
    assert SEEN == {"pandas": "LGA", "arrow": 2, "rows": (3, 1)}


def test_a_table_that_is_not_of_the_lake_and_a_value_to_write_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"'elsewhere' is of no operator of the lake.*flights/departures_by_origin"):
        dg.materialize([of_another, *TABLES], resources=resources(tmp_path))
    with pytest.raises(ReadError, match="this IO manager only reads"):
        dg.materialize([written], resources=resources(tmp_path / "other"))
