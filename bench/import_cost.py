"""CPU that a node spends before it can talk to a Java client: the package imported, and that client's codecs compiled.

Run it on a quiet machine: `python bench/import_cost.py`. It prints the median of several fresh interpreters that find
their bytecode compiled, as after an installation, less what the bare interpreter costs.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

LIMIT_MS = 80
RUNS = 11

JAVA_CLIENT = {
    "PRODUCE": 13,
    "FETCH": 18,
    "METADATA": 13,
    "LIST_OFFSETS": 11,
    "API_VERSIONS": 4,
    "FIND_COORDINATOR": 6,
    "JOIN_GROUP": 9,
    "SYNC_GROUP": 5,
    "HEARTBEAT": 4,
    "LEAVE_GROUP": 5,
    "OFFSET_COMMIT": 10,
    "OFFSET_FETCH": 10,
    "INIT_PRODUCER_ID": 5,
    "CREATE_TOPICS": 7,
    "DESCRIBE_CLUSTER": 2,
    "CONSUMER_GROUP_HEARTBEAT": 1,
}
"""The versions that Apache Kafka's Java clients 4.3 send."""

COMPILE = f"""
from odradek.protocol.api import ApiKey, request_class, response_class
from odradek.protocol.codec import decoder, parts_encoder
from odradek.protocol import frame
for name, version in {JAVA_CLIENT}.items():
    decoder(request_class(ApiKey[name]), version)
    parts_encoder(response_class(ApiKey[name]), version)
"""


REPORT = "import time; print(time.process_time() * 1000)"


def main() -> None:
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        cpu_ms(COMPILE + REPORT, environment)
        bare = statistics.median([cpu_ms(REPORT, environment) for _ in range(RUNS)])
        full = statistics.median([cpu_ms(COMPILE + REPORT, environment) for _ in range(RUNS)])
    print(f"bare interpreter      {bare:6.1f} ms")
    print(f"package and {2 * len(JAVA_CLIENT)} codecs {full:6.1f} ms")
    print(f"cost                  {full - bare:6.1f} ms of CPU (limit {LIMIT_MS})")
    raise SystemExit(0 if full - bare <= LIMIT_MS else 1)


def cpu_ms(program: str, environment: dict[str, str]) -> float:
    """What a fresh interpreter says it spent."""
    command = [sys.executable, "-c", program]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


if __name__ == "__main__":
    main()
