"""Window kinds: pure functions from a row to the bounds of its windows."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.windows.custom import Custom
    from streaming.windows.local_days import LocalDays
    from streaming.windows.session import SessionWindow
    from streaming.windows.window import Closing, Micros, Sliding, Tumbling, Window, whole_days

make_front(__name__)
