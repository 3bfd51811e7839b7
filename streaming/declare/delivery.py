"""The declaration of a delivery: a table of the lake that is carried on to a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod

from streaming.declare.operator import Operator
from streaming.declare.stream import Stream


class Delivery(ABC):
    """A frozen value that names what is delivered, and where to; see `streaming.sinks` for the contract of a sink."""

    name: str
    description: str

    @property
    @abstractmethod
    def of(self) -> Stream | Operator:
        """The stream or operator whose table is delivered."""
