"""The processes of a stream: `python -m streaming.service supervise PIPELINE` is the one to start."""

from __future__ import annotations

import sys

from streaming.service.process import process_main
from streaming.service.receivers import receive_main
from streaming.service.supervisor import supervise_main

if __name__ == "__main__":
    which, *arguments = sys.argv[1:]
    if which == "supervise":
        supervise_main(*arguments)
    elif which == "receive":
        receive_main(*arguments)
    else:
        process_main(*arguments)
