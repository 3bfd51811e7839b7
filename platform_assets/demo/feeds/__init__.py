"""Source systems in miniature: what they send lands in a folder or a topic, as it would in production.

What needs a client of Kafka or Postgres is imported from its own module.
"""

from platform_assets.demo.feeds.flights import FeedReport, airlines, feed_flights
from platform_assets.demo.feeds.landing import LandingWriter
from platform_assets.demo.feeds.ports import free_port, free_ports
