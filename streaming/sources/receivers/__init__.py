"""Receivers: what cannot be read again is received once, and lands in whole files."""

from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.http import HttpPoll
from streaming.sources.receivers.landing import LandingFolder
from streaming.sources.receivers.tcp import TcpListener, TcpSocket
from streaming.sources.receivers.websocket import Websocket
