"""How PySpark reaches the JVM: fewer messages for the same frames; see FACTS.md, Costs."""

from __future__ import annotations

import logging
from collections import deque
from functools import lru_cache
from threading import Thread
from time import sleep
from typing import Any

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaClass, JavaMember, JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_log = logging.getLogger("tidemark")

_ASKED_FOR_AGAIN_AND_AGAIN = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "PythonUtils",
    "PythonSQLUtils",
    "PythonRDD",
    "SerDeUtil",
    "SimplePythonFunction",
)
_SAME_FOR_THE_SAME_TEXT = ("col", "expr")
"""Functions of Spark that make a column of a text. A column is a value, also where it stands for a random number."""
_COLUMNS = 2_000
"""How many columns are kept, so that their memory is bounded."""
_OF_ONE_CALL = 10
"""Java's `List.of` takes so many elements."""
_AT_ONCE = 1_000
"""How many objects a release names."""
_OWN = 2
"""Objects that a release itself leaves behind for the next one."""


class _RememberedClass(JavaClass):
    """A class of the JVM whose static methods are looked up once."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):
            if name in _SAME_FOR_THE_SAME_TEXT:
                member = lru_cache(_COLUMNS)(member.__call__)
            self.__dict__[name] = member
        return member


class _Lists:
    """Hands texts and objects of the JVM over ten at a time; Py4J's own converter adds one element with each call."""

    def __init__(self, java: Any) -> None:
        self._list_of, self._array_list = java.java.util.List.of, java.java.util.ArrayList

    def can_convert(self, value: Any) -> bool:
        """As Py4J asks before each argument of a call."""
        # Java would take one array for many elements.
        return type(value) is list and bool(value) and all(map(self._is_one, value))

    @staticmethod
    def _is_one(value: Any) -> bool:
        return isinstance(value, str | JavaObject) and not isinstance(value, JavaArray)

    def convert(self, values: list[Any], client: Any) -> Any:
        """A Java list of the same elements."""
        parts = [self._list_of(*values[at : at + _OF_ONE_CALL]) for at in range(0, len(values), _OF_ONE_CALL)]
        if len(parts) == 1:
            return parts[0]
        whole = self._array_list()
        for part in parts:
            whole.addAll(part)
        return whole


class _Releases(Thread):
    """Tells the JVM which of its objects Python needs no longer, many with a few calls; Py4J calls once for each.

    They are told of a second later, as Py4J does while there is little to do.
    """

    def __init__(self, java: Any, client: Any, gateway: Any) -> None:
        super().__init__(name="tidemark-releases", daemon=True)
        self._client = client
        self._comma, self._as_list = java.java.util.regex.Pattern.compile(","), java.java.util.Arrays.asList
        self._held = gateway.java_gateway_server.getGateway().getBindings().keySet()
        self._waiting: deque[str] = deque()
        # Called by finalizers, so in any thread and in the midst of anything.
        client.garbage_collect_object = lambda target, enqueue=True: self._waiting.append(target)

    def run(self) -> None:
        while self._client.is_connected:
            sleep(1)
            try:
                while len(self._waiting) > _OWN:
                    self._release([self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))])
            except (Py4JError, OSError):
                # Most likely the JVM has ended, and with it whatever it held.
                _log.debug("the JVM could not be told what is needed no longer", exc_info=True)

    def _release(self, objects: list[str]) -> None:
        self._held.removeAll(self._as_list(self._comma.split(",".join(objects))))


def spare_calls(spark: SparkSession) -> None:
    """Spare the JVM what PySpark asks of it for every column of every expression."""
    context = spark.sparkContext
    java: Any = context._jvm
    if isinstance(getattr(java, _ASKED_FOR_AGAIN_AND_AGAIN[0]), _RememberedClass):
        return
    for name in _ASKED_FOR_AGAIN_AND_AGAIN:
        found = getattr(java, name)
        setattr(java, name, _RememberedClass(found._fqn, found._gateway_client))
    client = java._gateway_client
    client.converters = [_Lists(java), *client.converters]
    _Releases(java, client, context._gateway).start()
