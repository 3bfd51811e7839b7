"""Receivers: what cannot be read again is received once, and lands in whole files."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception
    from streaming.sources.receivers.dlt_poll import DltPoll
    from streaming.sources.receivers.http import HttpPoll
    from streaming.sources.receivers.landing import LandingFolder, landed_name
    from streaming.sources.receivers.mqtt import Mqtt
    from streaming.sources.receivers.postgres_changes import PostgresChanges
    from streaming.sources.receivers.rabbitmq import RabbitMq
    from streaming.sources.receivers.tcp import TcpListener, TcpSocket
    from streaming.sources.receivers.websocket import Websocket

make_front(__name__)
