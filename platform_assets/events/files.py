"""Files that a run has published, where Dagster's pages can show them and link to them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager

from streaming.base import needs

_PAGE_WIDTH, _DIALOG_WIDTH = 560, 1000


def serve(instance: dg.DagsterInstance, run_id: str, name: str, content: bytes) -> str | None:
    """The address, relative to the UI, under which Dagster serves `content` as the file `name`; None where it cannot.

    The UI serves nothing but what was captured of a run, so the file is put beside the run's logs. An instance that
    keeps its logs elsewhere than in a folder serves standard output and error only.
    """
    logs = instance.compute_log_manager
    if not isinstance(logs, LocalComputeLogManager):
        return None
    stem, _, extension = name.rpartition(".")
    key = [run_id, "files", stem]
    path = Path(logs.get_captured_local_path(key, extension))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"/logs/{'/'.join(key)}/{extension}"


def file_links(instance: dg.DagsterInstance, run_id: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Links to the `files`, by name; nothing where Dagster cannot serve them."""
    addresses = {name: serve(instance, run_id, name, content) for name, content in files.items()}
    links = [f"[{name}]({address})" for name, address in addresses.items() if address is not None]
    return {"files": dg.MetadataValue.md(" · ".join(links))} if links else {}


def chart_metadata(instance: dg.DagsterInstance, run_id: str, name: str, picture: bytes) -> dict[str, Any]:
    """A PNG as Markdown, short enough for the UI to show it on the asset's page where Dagster serves files.

    Elsewhere the text carries the picture itself, and the UI shows it on a click. It is made as wide as the UI has room
    for, which cuts off what is wider.
    """
    stem = name.removesuffix(".png")
    address = serve(instance, run_id, f"{stem}_small.png", _as_wide_as(_PAGE_WIDTH, picture))
    if address is None:
        address = f"data:image/png;base64,{base64.b64encode(_as_wide_as(_DIALOG_WIDTH, picture)).decode()}"
    return {"chart": dg.MetadataValue.md(f"![{stem}]({address})")}


def _as_wide_as(width: int, picture: bytes) -> bytes:
    needs("matplotlib", "a picture in Dagster")
    from matplotlib.image import imread, thumbnail

    small = io.BytesIO()
    thumbnail(io.BytesIO(picture), small, scale=min(1.0, width / imread(io.BytesIO(picture)).shape[1]))
    return small.getvalue()
