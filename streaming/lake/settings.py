"""Settings from the environment and from the project that a command runs in; each has a default for one machine."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from streaming.base import BadInterval, SettingsError, interval
from streaming.lake.lake import Lake

_DEMO = "platform_assets.demo"
_SPARK_PREFIX = "TIDEMARK_SPARK_"

SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")
"""Which of Spark's settings are shown to nobody: those that Spark itself leaves out where it lists them."""

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LogFormat = Literal["text", "json"]
IngestMode = Literal["fast", "careful", "both"]
_BETWEEN = re.compile(r"\s*=\s*|\s+")
"""Stands between a setting of Spark and its value, as in `spark-defaults.conf`."""
_KEYS = {"lake": "home", "pipelines": "pipelines", "suites": "suites", "reports": "reports"}
"""The keys of the table `[tool.tidemark]`, each with the setting that it is."""


@dataclass(frozen=True)
class _Project:
    """Where a project lies, and what its `[tool.tidemark]` says, by the names of the settings."""

    folder: Path
    settings: dict[str, str]


def find_project() -> _Project | None:
    """The project around the current folder, or around what `TIDEMARK_PROJECT` says, which processes in other folders
    are given; None where there is none.

    A relative lake lies in the project, wherever a command is typed.

    Raises:
        SettingsError: the file cannot be read, or the table says what nobody understands.
    """
    here = Path(os.environ.get("TIDEMARK_PROJECT") or Path.cwd()).resolve()
    for candidate in (here, *here.parents):
        file = candidate / "pyproject.toml"
        if file.is_file() and (table := _table(file)) is not None:
            return _Project(candidate, {_KEYS[name]: _value(file, name, value) for name, value in table.items()})
    return None


def make_importable(project: _Project | None) -> None:
    """Let Python find the packages in a project's folder: a command that is installed does not look there."""
    if project is not None and str(project.folder) not in sys.path:
        sys.path.append(str(project.folder))


def _table(file: Path) -> dict[str, object] | None:
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{str(file)!r} cannot be read: {error}.", "Correct it.", value=str(file)) from error
    table = tool.get("tidemark") if isinstance(tool, dict) else None
    if table is None:
        return None
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SettingsError(
            f"[tool.tidemark] in {str(file)!r} has {', '.join(map(repr, unknown))}, which is nothing; it may have: "
            f"{', '.join(_KEYS)}.",
            choices=tuple(_KEYS),
        )
    return dict(table)


def _value(file: Path, name: str, value: object) -> str:
    if name == "lake" and isinstance(value, str):
        return value if "://" in value else str(file.parent / Path(value).expanduser())
    names = [value] if isinstance(value, str) else value
    if name == "lake" or not isinstance(names, Iterable) or not all(isinstance(each, str) for each in names):
        wanted = "a path or URI" if name == "lake" else 'a list of packages, such as ["acme.pipelines"]'
        raise SettingsError(f"{name} = {value!r} in [tool.tidemark] of {str(file)!r} must be {wanted}", "correct it.")
    return ",".join(map(str, names))


class Settings(BaseSettings):
    """Where the lake and the declarations are, and what Spark is told.

    Read when built: from variables `TIDEMARK_*` of the environment, then from `[tool.tidemark]` of the project.
    """

    model_config = SettingsConfigDict(env_prefix="TIDEMARK_", extra="ignore")

    home: str = Field(default="./lake", description="Root of the lake: a path or any URI Spark can write to.")
    pipelines: str = Field(
        default="platform_assets.demo.pipelines", description="Packages of pipelines, separated by commas."
    )
    suites: str = Field(default=f"{_DEMO}.suites", description="Packages of suites, separated by commas.")
    reports: str = Field(
        default="platform_assets.demo.reports", description="Packages of reports, separated by commas."
    )
    master: str = Field(default="local[*]", description="Spark master.")
    scratch: Path | None = Field(default=None, description="Folder for temporary files of Spark and its JVM.")
    alerts_to: str | None = Field(default=None, description="URL to which alerts of streams are posted as JSON.")
    log_level: LogLevel = Field(default="INFO", description="From which level on a stream's log has lines.")
    log_format: LogFormat = Field(default="text", description="Lines of text, or a JSON object on each line.")
    lineage_every: str = Field(
        default="5 minutes", description="How often a running stream tells OpenLineage that it runs, and of what rows."
    )
    ingest: IngestMode = Field(
        default="fast",
        description="Rows enter the log by tasks where these are certain (fast), by Spark alone (careful), or both "
        "ways, which fails where they differ.",
    )
    conf_file: Path | None = Field(default=None, description="Spark settings, `key value` or `key=value` a line.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources of settings, in order: what is given wins over the environment, which wins over the project."""
        project = find_project()
        return init_settings, env_settings, InitSettingsSource(settings_cls, project.settings if project else {})

    @field_validator("log_level", mode="before")
    @classmethod
    def _known_level(cls, value: str) -> str:
        return _one_of("TIDEMARK_LOG_LEVEL", value, get_args(LogLevel))

    @field_validator("log_format", mode="before")
    @classmethod
    def _known_format(cls, value: str) -> str:
        return _one_of("TIDEMARK_LOG_FORMAT", value, get_args(LogFormat))

    @field_validator("ingest", mode="before")
    @classmethod
    def _known_mode(cls, value: str) -> str:
        return _one_of("TIDEMARK_INGEST", value, get_args(IngestMode))

    @field_validator("lineage_every")
    @classmethod
    def _is_interval(cls, value: str) -> str:
        try:
            long_enough = interval(value) > timedelta()
        except BadInterval as error:
            raise SettingsError(
                f"TIDEMARK_LINEAGE_EVERY: {error}", field="TIDEMARK_LINEAGE_EVERY", value=value
            ) from error
        if not long_enough:
            raise SettingsError(
                f"TIDEMARK_LINEAGE_EVERY={value!r} is no time at all",
                "set it to a length such as '5 minutes', or unset it.",
                field="TIDEMARK_LINEAGE_EVERY",
                value=value,
            )
        return value

    @property
    def lake(self) -> Lake:
        """The lake at `home`; a relative path is made absolute, because Spark's workers have other folders."""
        return Lake(self.home if "://" in self.home else str(Path(self.home).expanduser().resolve()))

    def spark_overrides(self) -> dict[str, str]:
        """The user's own Spark settings: the conf file's, then `TIDEMARK_SPARK_*`, which win.

        `TIDEMARK_SPARK_SQL_SHUFFLE_PARTITIONS=4` sets `spark.sql.shuffle.partitions`; where the key has capitals,
        write it as it is: `TIDEMARK_SPARK_spark.sql.autoBroadcastJoinThreshold=-1`.

        Raises:
            SettingsError: the conf file is missing or a line of it has no value.
        """
        return {**self._conf_file(), **dict(_from_environment())}

    def _conf_file(self) -> dict[str, str]:
        if self.conf_file is None:
            return {}
        if not self.conf_file.is_file():
            raise SettingsError(
                f"TIDEMARK_CONF_FILE={str(self.conf_file)!r} is no file",
                "correct or unset it.",
                field="TIDEMARK_CONF_FILE",
                value=str(self.conf_file),
            )
        entries: dict[str, str] = {}
        for line in self.conf_file.read_text().splitlines():
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            key, *value = _BETWEEN.split(text, maxsplit=1)
            if not any(value):
                raise SettingsError(f"line {line!r} of {self.conf_file} has no value", "write 'spark.key value'.")
            (entries[key],) = value
        return entries


def _one_of(name: str, value: str, valid: tuple[str, ...]) -> str:
    """The one of the `valid` values that `value` is, in capitals or not."""
    for each in valid:
        if each.lower() == value.lower():
            return each
    raise SettingsError(
        f"{name}={value!r} is none of {', '.join(valid)}",
        "set it to one of them, or unset it.",
        field=name,
        value=value,
        choices=tuple(valid),
    )


def _from_environment() -> list[tuple[str, str]]:
    overrides = []
    for name, value in os.environ.items():
        if name.startswith(_SPARK_PREFIX):
            key = name.removeprefix(_SPARK_PREFIX)
            overrides.append((key if "." in key else f"spark.{key.lower().replace('_', '.')}", value))
    return overrides
