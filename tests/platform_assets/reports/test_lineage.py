"""Columns of a query are followed to the files that they are read from, whatever Spark does on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from platform_assets.reports.lineage import columns_read


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return written(spark, tmp_path_factory, "orders")


@pytest.fixture(scope="module")
def returns(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return written(spark, tmp_path_factory, "returns")


def written(spark: SparkSession, folder: pytest.TempPathFactory, name: str) -> DataFrame:
    path = str(folder.mktemp("tables") / name)
    rows = spark.createDataFrame([("a", 1, 2.0, ["x"])], "shop string, number int, price double, tags array<string>")
    rows.write.parquet(path)
    return spark.read.parquet(path)


def followed(frame: DataFrame) -> dict[str, set[str]]:
    """The columns that each one is computed from, as `orders.price`."""
    read = columns_read(frame)
    return {column: {f"{Path(location).name}.{name}" for location, name in of} for column, of in read.items()}


def test_columns_are_followed_through_sums_joins_unions_windows_and_lists(
    spark: SparkSession, orders: DataFrame, returns: DataFrame
) -> None:
    both = orders.select("shop", (F.col("price") * F.col("number")).alias("value"), "tags").unionByName(
        returns.select("tags", (-F.col("price")).alias("value"), "shop")
    )
    names = spark.createDataFrame([("a", "Anna's")], "shop string, name string")
    frame = (
        both.withColumn("tag", F.explode("tags"))
        .groupBy("shop", "tag")
        .agg(F.sum("value").alias("total"), F.count(F.lit(1)).alias("rows"))
        .withColumn("rank", F.rank().over(Window.partitionBy("shop").orderBy("total")))
        .join(names, "shop", "left")
        .withColumn("shown", F.coalesce("name", "shop"))
        .where("total > 0")
    )
    assert followed(frame) == {
        "shop": {"orders.shop", "returns.shop"},
        "tag": {"orders.tags", "returns.tags"},
        "total": {"orders.price", "orders.number", "returns.price"},
        "rows": set(),
        "rank": {"orders.price", "orders.number", "orders.shop", "returns.price", "returns.shop"},
        "name": set(),
        "shown": {"orders.shop", "returns.shop"},
    }


def test_columns_are_followed_through_subtotals_and_a_table_that_is_joined_to_itself(orders: DataFrame) -> None:
    subtotals = orders.rollup("shop", "number").agg(F.sum("price").alias("total"))
    frame = subtotals.join(orders.select("shop", F.col("price").alias("single")), "shop")
    assert followed(frame) == {
        "shop": {"orders.shop"},
        "number": {"orders.number"},
        "total": {"orders.price"},
        "single": {"orders.price"},
    }


def test_what_a_function_over_rows_makes_may_be_of_all_that_it_is_given(orders: DataFrame) -> None:
    def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"twice": frame["number"] * 2})

    frame = orders.select("shop", "number").mapInPandas(doubled, "twice long")
    assert followed(frame) == {"twice": {"orders.shop", "orders.number"}}
