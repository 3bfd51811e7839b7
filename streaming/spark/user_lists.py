"""Spark settings that are lists: what a user adds stands behind what Tidemark needs, and takes nothing of it away."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from streaming.lake import Settings

CLASS_PATH = "spark.driver.extraClassPath"
_BETWEEN = {CLASS_PATH: os.pathsep, "spark.jars": ",", "spark.sql.extensions": ","}
_ENTRY = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?\s*(.*)")
"""A line of a properties file of Java."""


def users_lists(settings: Settings) -> dict[str, str]:
    """The lists that the user has set: by the settings, or else by Spark's own file of defaults.

    Raises:
        SettingsError: the conf file cannot be read.
    """
    given = {**spark_defaults(), **settings.spark_overrides()}
    return {key: given[key] for key in _BETWEEN if given.get(key)}


def joined_lists(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """The lists that both have, each entry once, ours first."""
    return {
        key: between.join(dict.fromkeys([*ours[key].split(between), *theirs[key].split(between)]))
        for key, between in _BETWEEN.items()
        if key in ours and key in theirs
    }


def spark_defaults() -> dict[str, str]:
    """The entries of `spark-defaults.conf`, which Spark itself overrides by what it is told at its start."""
    try:
        text = (conf_folder() / "spark-defaults.conf").read_text()
    except OSError:
        return {}
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    entries = (entry.groups() for entry in map(_ENTRY.match, lines) if entry)
    return {key: re.sub(r"\\(.)", r"\1", value).strip() for key, value in entries}


def conf_folder() -> Path:
    """Where Spark looks for its files of settings."""
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
