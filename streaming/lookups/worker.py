"""The process in which a plain function is called, so that it can be killed where it hangs.

It is handed the function first, then one row after another, and ends as soon as whoever asks is gone.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from decimal import setcontext
from queue import SimpleQueue
from typing import IO, Any

from streaming.base import DECIMALS, row_class
from streaming.declare import LookupRequest
from streaming.lookups.calls import framed, read_frame


def main() -> None:
    """Serve until the input ends."""
    # Whoever asks is told of an interrupt, and ends this process when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setcontext(DECIMALS)
    given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What the function prints must not get between the answers.
    os.dup2(2, 1)
    with ExitStack() as stack:
        try:
            function, opens, columns = read_frame(given)
            opened = None if opens is None else stack.enter_context(opens())
        # Whoever asks is told why there is no function to call.
        except Exception as error:
            _send(answers, ("error", "error", _text(error)))
            return
        asked: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=_receive, args=(given, asked), daemon=True).start()
        row_of = row_class(columns)
        _send(answers, ("ready", None, None))
        while True:
            row, key, attempt = asked.get()
            try:
                answer = function(tuple.__new__(row_of, row), LookupRequest(key, attempt, opened))
                frame = framed(("answer", answer, None))
            # The function may raise anything: that is the answer to its own row, and to no other.
            except Exception as error:
                kind = "timeout" if isinstance(error, TimeoutError) else "error"
                frame = framed(("error", kind, _text(error)))
            answers.write(frame)
            answers.flush()


def _receive(given: IO[bytes], asked: SimpleQueue[Any]) -> None:
    """Hand on what is asked; while the function computes, this thread sees that nobody waits for it any more."""
    try:
        while True:
            asked.put(read_frame(given))
    except EOFError:
        os._exit(0)


def _send(answers: IO[bytes], message: tuple[Any, ...]) -> None:
    answers.write(framed(message))
    answers.flush()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
