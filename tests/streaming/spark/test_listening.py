"""A Spark session on one machine is reached from that machine alone."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any

import psutil
from pyspark.sql import SparkSession


def test_the_jvm_of_a_local_session_listens_on_loopback_addresses_only(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    java = psutil.Process(context._jvm.java.lang.ProcessHandle.current().pid())
    addresses = [ip_address(each.laddr.ip) for each in java.net_connections("tcp") if each.status == "LISTEN"]
    mapped = [each.ipv4_mapped or each if isinstance(each, IPv6Address) else each for each in addresses]
    assert addresses and [each for each in mapped if not each.is_loopback] == []
