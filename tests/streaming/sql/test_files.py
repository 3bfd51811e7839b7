"""A file with a query says at its head what else is to be known, and a wrong head is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.base import DeclarationError
from streaming.sql import QueryFile

REVENUE = """-- Revenue of each country and day,
-- late orders included.
--
-- key: country, day
-- every: 1 minute

select c.country, o.day, sum(o.amount) as revenue -- not: a setting
from orders o join customers c using (customer)
group by all;
"""


def test_a_file_has_its_query_and_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "revenue.sql"
    path.write_text(REVENUE, encoding="utf-8-sig")
    file = QueryFile.read(path)
    assert (file.name, file.key, file.every, file.of, file.line) == ("revenue", ("country", "day"), "1 minute", (), 7)
    assert file.sql.startswith("select c.country") and file.sql.endswith("group by all")
    assert file.description == "Revenue of each country and day,\nlate orders included."


def test_names_may_be_quoted_and_settings_may_have_any_case() -> None:
    text = (
        "-- KEY: `a, b`,  c , `d``e`\n--name: other\n-- of: orders, flights.log\n-- deterministic: mine\nselect 1 as x"
    )
    file = QueryFile.parse(text, "x.sql")
    assert file.key == ("a, b", "c", "d`e")
    assert (file.name, file.of, file.deterministic) == ("other", ("orders", "flights.log"), ("mine",))


def test_all_rows_may_be_replaced_together() -> None:
    assert QueryFile.parse("-- key: ()\nselect count(*) n from orders", "x.sql").key == ()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("select 1 as x", 1, "does not say which rows are replaced together"),
        ("-- a view\n-- keys: day\nselect 1", 2, "unknown setting 'keys'"),
        ("-- key: day\n-- key: day\nselect 1", 2, "sets 'key' again"),
        ("-- key:\nselect 1", 1, "sets 'key' to nothing"),
        ("-- key: day,\nselect 1", 1, "where a list of names should be"),
        ("-- key: day,,x\nselect 1", 1, "where a list of names should be"),
        ("-- key: `day\nselect 1", 1, "where a list of names should be"),
        ("-- key: day\n\n;\n", 3, "has no query"),
        ("", 1, "does not say which rows"),
    ],
)
def test_a_wrong_head_is_told_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(DeclarationError, match=rf"views/x.sql, line {line}, .*{says}") as refused:
        QueryFile.parse(text, "views/x.sql")
    assert refused.value.value == "views/x.sql" and refused.value.next_step


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sql"
    path.write_bytes(b"-- key: d\xff")
    with pytest.raises(DeclarationError, match=r"x\.sql is no text in UTF-8"):
        QueryFile.read(path)
