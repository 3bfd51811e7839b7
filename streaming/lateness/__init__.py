"""The lateness of rows, and what another delay would have meant."""

from streaming.lateness.profile import Profile, Spread, profile
from streaming.lateness.replay import Outcome
