"""Source systems in miniature: what they send lands in a folder, as it would in production."""

from streaming.feeds.disorder import shifted
from streaming.feeds.flights import FeedReport, feed_flights
from streaming.feeds.landing import LandingWriter
from streaming.feeds.nycflights import airlines

__all__ = ["FeedReport", "LandingWriter", "airlines", "feed_flights", "shifted"]
