"""The producer: records gather in batches by partition, and a sender takes full or old enough ones to the leaders.

`partitioners` chooses the partition, `accumulator` keeps the queues and the memory they may take, `sender` carries out:
retries in order, sequence numbers, epochs. `transactions` begins and ends them, and says what a failure means for them.
Nothing is lost silently: every record's future gets an offset or an error.
"""

from __future__ import annotations

from odradek.client.producer.batch import RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import ProducerIdentity

__all__ = ["Producer", "ProducerIdentity", "RecordMetadata"]
