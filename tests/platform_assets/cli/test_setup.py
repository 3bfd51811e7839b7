"""What `tidemark setup` fetches."""

from __future__ import annotations

from tests.platform_assets.conftest import Tidemark


def test_jars_that_there_are_none_of_are_refused_with_those_there_are(tidemark: Tidemark) -> None:
    code, text = tidemark("setup --with kafka --with rabbits")
    assert code == 1
    assert "there are no jars rabbits; groups are: core, kafka, s3, broker." in text
