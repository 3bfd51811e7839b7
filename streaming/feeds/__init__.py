"""Source systems in miniature: what they send lands in a folder or a topic, as it would in production."""

from streaming.feeds.disorder import shifted
from streaming.feeds.feed_report import FeedReport
from streaming.feeds.flights import feed_flights
from streaming.feeds.flights_topic import send_flights
from streaming.feeds.landing import LandingWriter
from streaming.feeds.local_kafka import READY_WITHIN, LocalKafka
from streaming.feeds.local_postgres import LocalPostgres
from streaming.feeds.nycflights import airlines
from streaming.feeds.ports import free_port, free_ports
