"""Spark settings that are lists: what a user adds stands behind what Tidemark needs, and takes nothing of it away."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

from streaming.lake import Settings

CLASS_PATH = "spark.driver.extraClassPath"
_BETWEEN = {CLASS_PATH: os.pathsep, "spark.jars": ",", "spark.sql.extensions": ","}


def users_lists(settings: Settings) -> dict[str, str]:
    """What the user has set of the lists: by the settings, or else by Spark's own file of defaults.

    Raises:
        SettingsError: the conf file cannot be read.
    """
    given = {**_spark_defaults(), **settings.spark_overrides()}
    return {key: given[key] for key in _BETWEEN if given.get(key)}


def joined_lists(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """The lists that both have, each entry once, ours first."""
    return {
        key: between.join(dict.fromkeys([*ours[key].split(between), *theirs[key].split(between)]))
        for key, between in _BETWEEN.items()
        if key in ours and key in theirs
    }


def _spark_defaults() -> dict[str, str]:
    """The entries of `spark-defaults.conf`, which Spark itself overrides by what it is told at its start."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = os.environ.get("SPARK_CONF_DIR") or Path(home, "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    entries = (
        line.strip().replace("=", " ", 1).split(maxsplit=1) for line in lines if not line.lstrip().startswith("#")
    )
    return {entry[0]: entry[1] for entry in entries if len(entry) == 2}
