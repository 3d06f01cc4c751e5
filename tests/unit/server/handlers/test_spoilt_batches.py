"""Spoilt batches in every version of Produce, each way through: what Apache Kafka answers is answered."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.spoilt.batches import TOPICS, batch, record
from tests.spoilt.record import VERSIONS, Answer, recorded
from tests.spoilt.unlike_kafka import expected
from tests.unit.server.rig import Rig

from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

EVERY = 7
"""A few of the batches in each version; over the network all of them are, in `tests/compat/test_spoilt_batches.py`."""


def test_answers_in_every_version() -> None:
    rig = Rig()
    codes = Counter[int]()

    async def send() -> None:
        hosts = {}
        for name, settings in TOPICS.items():
            (hosts[name],) = await rig.create_topic(name, 1, settings)
        client = rig.connect()
        for index, (case, by_version) in enumerate(recorded()):
            for version in VERSIONS:
                if (index + version) % EVERY or case.topic == "recent":  # The made-up clock is no later than they are.
                    continue
                hosted = hosts[case.topic]
                end_offset = hosted.partition.log.log_end_offset
                data = [PartitionProduceData(index=0, records=memoryview(case.batch))]
                topic = TopicProduceData(name=case.topic, topic_id=hosted.topic_id, partition_data=data)
                response = await client.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), version)
                assert isinstance(response, ProduceResponse)
                (part,) = response.responses[0].partition_responses
                bad = tuple(each.batch_index for each in part.record_errors)
                wanted = expected(case, by_version[version])
                assert Answer(part.error_code, bad) == wanted, (case.name, version, part)
                taken = hosted.partition.log.log_end_offset - end_offset
                assert (taken > 0) == (wanted.code == 0), (case.name, version)
                assert all(each.batch_index_error_message for each in part.record_errors)
                codes[wanted.code] += 1

    rig.run(send)
    assert min(codes.values()) > 5, codes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("apart", [False, True])
def test_of_a_partition_that_is_named_twice_the_last_batch_counts(version: int, apart: bool) -> None:
    rig = Rig()
    one, two = batch(record(0), 1), batch(record(0) + record(1), 2)
    spoilt = batch(record(0, more=1), 1)

    async def send() -> None:
        (hosted,) = await rig.create_topic("t", 1)
        client = rig.connect()
        for first, second, code, taken in ((one, two, 0, 2), (spoilt, one, 0, 1), (one, spoilt, 87, 0)):
            before = hosted.partition.log.log_end_offset
            data = [PartitionProduceData(index=0, records=memoryview(each)) for each in (first, second)]
            topics = [
                TopicProduceData(name="t", topic_id=hosted.topic_id, partition_data=parts)
                for parts in ([data[:1], data[1:]] if apart else [data])
            ]
            response = await client.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), version)
            assert isinstance(response, ProduceResponse)
            ((part,),) = (topic.partition_responses for topic in response.responses)
            assert part.error_code == code
            assert hosted.partition.log.log_end_offset - before == taken

    rig.run(send)
