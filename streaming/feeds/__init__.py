"""Source systems in miniature: what they send lands in a folder or a topic, as it would in production.

What needs a client of Kafka or Postgres is imported from its own module.
"""

from streaming.feeds.disorder import shifted
from streaming.feeds.feed_report import FeedReport
from streaming.feeds.flights import feed_flights
from streaming.feeds.landing import LandingWriter
from streaming.feeds.nycflights import airlines
from streaming.feeds.ports import free_port, free_ports
