"""Queries as files: what else is to be known of one stands in comments at its head.

-- Revenue of each country and day.
-- key: country, day
select ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from streaming.base import DeclarationError

_SETTING = re.compile(r"--\s*([A-Za-z_]+)\s*:\s*(.*?)\s*$")
_NAMES = re.compile(r"\s*(`(?:[^`]|``)+`|[^,`]+?)\s*(?:,|$)")
_TABLE = re.compile(r"([A-Za-z_]\w*)\s+at\s+(\S+?)\s*(?:\((.+)\))?")
_SETTINGS = ("name", "key", "of", "table", "every", "deterministic")
_GLOBAL = "()"


@dataclass(frozen=True)
class QueryFile:
    """A file with a query, as it is written: nothing in it is looked up or computed yet."""

    path: str
    name: str
    """The name at its head, or else that of the file."""
    sql: str
    """The query, without the head and without a semicolon at its end."""
    line: int
    """The line at which `sql` begins, from 1 on."""
    key: tuple[str, ...]
    """The columns of the key; () where the head says `-- key: ()`."""
    of: tuple[str, ...] = ()
    """The relations that the query may read; () where the head does not name them."""
    tables: tuple[tuple[str, str, str], ...] = ()
    """Tables of others that the query reads: the name in `from`, the place, and the columns in Spark DDL.

    The place of a table without columns is `pipeline.operator`, of which it is what is current.
    """
    every: str | None = None
    """The interval at which it is computed."""
    deterministic: tuple[str, ...] = ()
    """Functions of users that it may call."""
    description: str = ""
    """The comments of the head that set nothing."""

    @classmethod
    def read(cls, path: str | Path) -> QueryFile:
        """Read a file.

        Raises:
            DeclarationError: it is no text, or its head is wrong; the text names the file and the line.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise DeclarationError(
                f"{path} is no text in UTF-8: {error.reason} at byte {error.start}",
                "Save it as UTF-8.",
                value=str(path),
            ) from error
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: str, path: str | Path) -> QueryFile:
        """Parse the text of a file.

        Raises:
            DeclarationError: its head is wrong; the text names the file and the line.
        """
        lines = text.splitlines()
        head = next(
            (at for at, line in enumerate(lines) if line.strip() and not line.strip().startswith("--")), len(lines)
        )
        settings: dict[str, str] = {}
        tables = list[tuple[str, str, str]]()
        description = []
        for number, line in enumerate(lines[:head], 1):
            setting = _SETTING.fullmatch(line.strip())
            if setting is None:
                description.append(line.strip().removeprefix("--").strip())
                continue
            word, value = setting[1].lower(), setting[2]
            if word not in _SETTINGS:
                raise _wrong(
                    path,
                    number,
                    f"has the unknown setting {setting[1]!r}",
                    f"Settings are: {', '.join(_SETTINGS)}. Other comments have no colon behind their first word.",
                )
            if word == "table" and value:
                tables.append(_table(value, path, number))
                continue
            if word in settings:
                raise _wrong(path, number, f"sets {word!r} again", "Set it once.")
            if not value:
                raise _wrong(path, number, f"sets {word!r} to nothing", "Write the value behind the colon.")
            settings[word] = _checked(word, value, path, number)
        if "key" not in settings:
            raise _wrong(
                path,
                1,
                "does not say which rows are replaced together",
                f"Write at its head, such as `-- key: country, day`; `-- key: {_GLOBAL}` is one key for all rows.",
            )
        sql = "\n".join(lines[head:]).strip().removesuffix(";").rstrip()
        if not sql:
            raise _wrong(path, len(lines) or 1, "has no query", "Write a `select` below its head.")
        return cls(
            path=str(path),
            name=settings.get("name", Path(path).stem),
            sql=sql,
            line=head + 1,
            key=() if settings["key"] == _GLOBAL else _names(settings["key"]),
            of=_names(settings.get("of", "")),
            tables=tuple(tables),
            every=settings.get("every"),
            deterministic=_names(settings.get("deterministic", "")),
            description="\n".join(description).strip(),
        )


def _table(value: str, path: str | Path, number: int) -> tuple[str, str, str]:
    """The name, the place and the columns of a table of others."""
    parts = _TABLE.fullmatch(value)
    if parts is None:
        raise _wrong(
            path,
            number,
            f"has {value!r} where a table should be",
            "Write its name in the query, its place and the columns that the query reads, such as `-- table: regions "
            "at dimensions/regions (id bigint, name string)`, or, of an operator of another pipeline, `-- table: NAME "
            "at pipeline.operator`.",
        )
    return parts[1].lower(), parts[2], parts[3] or ""


def _checked(word: str, value: str, path: str | Path, number: int) -> str:
    is_list = word in ("key", "of", "deterministic") and value != _GLOBAL
    if is_list and (value.endswith(",") or "".join(match[0] for match in _NAMES.finditer(value)) != value):
        raise _wrong(
            path, number, f"has {value!r} where a list of names should be", "Write names with commas between them."
        )
    return value


def _names(value: str) -> tuple[str, ...]:
    """The names of a list; within backquotes a name may have commas."""
    return tuple(_unquoted(match[1]) for match in _NAMES.finditer(value) if match[1])


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _wrong(path: str | Path, line: int, says: str, way_out: str) -> DeclarationError:
    return DeclarationError(f"{path}, line {line}, {says}.", way_out, value=str(path))
