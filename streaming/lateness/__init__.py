"""The lateness of rows, and what another delay would have meant."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.lateness.profile import Profile, Spread, profile
    from streaming.lateness.replay import Outcome

make_front(__name__)
