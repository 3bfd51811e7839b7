"""`tidemark metrics`: every stream for Prometheus, or once as JSON, and beside it the latest values of each key."""

from __future__ import annotations

from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from platform_assets.cli.context import console, current_lake
from platform_assets.cli.metrics_document import MetricsDocument
from quality import GateCollector
from streaming.base import LOOPBACK, Access, SupervisorError, utc_now
from streaming.declare import declared_pipelines
from streaming.service import LatestValues, Overview, StreamCollector, look, serve


def metrics(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9464,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines reach takes a token.")
    ] = LOOPBACK,
    token: Annotated[
        str | None,
        typer.Option(help="Variable of the environment with what must be sent as `Authorization: Bearer ...`."),
    ] = None,
    certificate: Annotated[str | None, typer.Option(help="PEM file of a certificate: only HTTPS is spoken.")] = None,
    key: Annotated[str | None, typer.Option(help="PEM file of its key, where that is in another file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them once as JSON, and serve nothing.")] = False,
) -> None:
    """Serve every stream's state to Prometheus, and the latest value of each key as JSON, until Ctrl-C.

    Beside them, what the gate says of each table. It may run beside the streams or without any.
    """
    access = Access("tidemark metrics", host, token, certificate, key)
    lake = current_lake()

    def look_at_all() -> list[Overview]:
        return [look(lake, pipeline) for pipeline in declared_pipelines().values()]

    gate = GateCollector(lake, utc_now)
    if as_json:
        MetricsDocument.of(lake.root, utc_now(), look_at_all(), gate.samples()).print()
        return
    registry = CollectorRegistry()
    registry.register(StreamCollector(look_at_all, utc_now))
    registry.register(gate)
    try:
        server = serve(port, registry, LatestValues(lake, declared_pipelines, utc_now), access)
    except OSError as error:
        raise SupervisorError(
            f"port {port} of {host} cannot be had ({error.strerror})", "choose another with --port or --host."
        ) from error
    here = f"{'http' if certificate is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
    message = f"metrics of {lake.root} on {here}/metrics, latest values of each key on {here}/latest; Ctrl-C stops it."
    console.print(message, soft_wrap=True)
    try:
        with server:
            server.serve_forever()
    except KeyboardInterrupt:
        return
