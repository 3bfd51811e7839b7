"""The preview of a retraction in words and as a document, of effects that no lake is needed for."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest

from platform_assets.cli.context import console
from platform_assets.cli.documents import RetractionPreviewDocument
from platform_assets.cli.retract import print_preview
from platform_assets.texts.retraction import as_markdown
from streaming.operations import RetractionPreview, RowChoice
from streaming.operations.retract import Follower
from streaming.operators.effects import ChangedWindow, Effect

DAY = date(2026, 3, 2)
NINE, TEN = datetime(2026, 3, 2, 9, tzinfo=UTC), datetime(2026, 3, 2, 10, tzinfo=UTC)
OF_DAY = ({"_day": DAY, "_taken_back": 2},)
PREVIEW = RetractionPreview(
    "orders",
    3,
    {DAY: 3},
    ({"id": "a"},),
    (
        Effect("large", "2 rows would be taken back", {"taken_back": 2, "added": 0}, OF_DAY),
        Effect(
            "hours",
            "1 window would change",
            {"windows": 1},
            windows=(ChangedWindow(("de",), NINE, TEN, 1, {"paid": 2}, None),),
            due=(DAY,),
        ),
        Effect(
            "revenue",
            "1,202 keys would be computed anew, of 9,000 rows that the view has now",
            {"keys": 1202, "standing": 9000},
            ({"ship_to": "a|b"}, {"ship_to": None}),
            1200,
        ),
        Effect("total", "all would be computed anew, which is 1 row now", {"standing": 1}),
    ),
    {"mine": "its kind does not tell"},
    (Follower("stream", "by_hour", "chain", "hours"),),
)


def test_people_read_what_would_change_where_and_whom_it_reaches() -> None:
    told = as_markdown(PREVIEW, ("weekly",)).splitlines()
    assert told[0] == "**3 rows** of orders. Nothing was written."
    assert [line for line in told if line.startswith(("###", "-", "..."))] == [
        "### large: 2 rows would be taken back",
        "### hours: 1 window would change",
        "### revenue: 1,202 keys would be computed anew, of 9,000 rows that the view has now",
        "... and 1,200 more.",
        "### total: all would be computed anew, which is 1 row now",
        "- mine: cannot be told: its kind does not tell",
        "- stream by_hour of pipeline chain follows hours, and is told of each change",
        "- report weekly reads what would change",
    ]
    # A column with a name of the platform's own is told in words, one of a user's as it is.
    rows = [line for line in told if line.startswith("|") and "---" not in line]
    assert rows[2:4] == ["| day | taken back |", "| 2026-03-02 | 2 |"]
    assert rows[6:] == ["| ship_to |", "| a\\|b |", "| none |"]
    assert "hours would wait for a correction of 2026-03-02." in told


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)
    print_preview(PREVIEW, "orders", RowChoice("amount > 1"), ("weekly",))
    printed = capsys.readouterr().out
    for effect in PREVIEW.effects:
        assert f"{effect.table}: {effect.summary}" in printed
    assert "hours: first results stay, and are due for a correction: 2026-03-02" in printed
    assert "stream by_hour of pipeline chain follows hours, and is told of each change" in printed
    assert "report weekly reads what would change" in printed


def test_the_document_has_every_number() -> None:
    told = json.loads(RetractionPreviewDocument.of(PREVIEW, ("weekly",)).model_dump_json())
    assert (told["changed_windows"], told["due"], told["reports"]) == (
        {"hours": 1},
        {"hours": ["2026-03-02"]},
        ["weekly"],
    )
    assert {each["table"]: (each["numbers"], each["more"], each["due"]) for each in told["effects"]} == {
        "large": ({"taken_back": 2, "added": 0}, 0, None),
        "hours": ({"windows": 1}, 0, ["2026-03-02"]),
        "revenue": ({"keys": 1202, "standing": 9000}, 1200, None),
        "total": ({"standing": 1}, 0, None),
    }
    assert told["effects"][0]["parts"] == [{"_day": "2026-03-02", "_taken_back": 2}]
    assert told["unknown"] == {"mine": "its kind does not tell"}
    of_hours = {"kind": "stream", "name": "by_hour", "pipeline": "chain", "of": "hours", "looks_up": False}
    assert told["followers"] == [of_hours]
