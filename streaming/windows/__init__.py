"""Window kinds: pure functions from a row to the bounds of its windows."""

from streaming.windows.custom import Custom
from streaming.windows.local_days import LocalDays
from streaming.windows.periodic import Sliding, Tumbling
from streaming.windows.session import SessionWindow
from streaming.windows.window import Window, whole_days
