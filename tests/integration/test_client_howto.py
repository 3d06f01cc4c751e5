"""The page about the client says what works: its examples run, in order, against a node."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

from odradek.client import TopicPartition
from odradek.testing import running_node

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "python-client.md"


def test_the_examples_of_the_page_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    produce, partition, transaction, offsets, share, consume, administer = examples
    with running_node() as node:
        scope: dict[str, object] = {"TopicPartition": TopicPartition}
        exec(produce.replace("127.0.0.1:9092", node.bootstrap_servers), scope)
        assert "async for record in consumer:" in consume
        once = consume.replace(
            "        print(record", "        read.append(record.value)\n        break\n        print(record"
        )
        body = "\n".join([partition, "await producer.close()", transaction, once, administer])
        whole = f"client = connect({node.bootstrap_servers!r})\nread = []\n{body}"
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        asyncio.run(eval(compile(whole, str(PAGE), "exec", flags=flags), scope))
        assert scope["read"] == [b"hello"]
    assert "send_offsets_to_transaction(" in offsets, "tests of transactions run these two"
    assert "share_transaction(" in share
