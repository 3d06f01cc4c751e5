"""Producers of other make, for `Load`: each notes what it was told is written."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import aiokafka
import kafka
from tests.chaos.load import PATIENCE_S, Load
from tests.compat import maven

JAVA_RECORDS_A_S = 400


def kafka_python(load: Load, name: str) -> None:
    """kafka-python, idempotent."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=load.bootstrap_servers.split(","),
        client_id=name,
        enable_idempotence=True,
        linger_ms=2,
        retry_backoff_ms=50,
        delivery_timeout_ms=int(PATIENCE_S * 1000),
        request_timeout_ms=5000,
    )
    waiting = []
    for index, record in load.records_of(name):
        waiting.append((record, producer.send(load.topic, record, partition=index)))
        if index == load.partitions - 1:
            load.pass_time(0.005)
            waiting = [each for each in waiting if not _noted(load, name, *each)]
    producer.flush(PATIENCE_S)
    for record, sent in waiting:
        told = sent.get(PATIENCE_S)
        load.note_acknowledged(name, told.partition, told.offset, record)
    producer.close(PATIENCE_S)


def _noted(load: Load, name: str, record: bytes, sent: kafka.producer.future.FutureRecordMetadata) -> bool:
    if not sent.is_done:
        return False
    told = sent.get(0)
    load.note_acknowledged(name, told.partition, told.offset, record)
    return True


def aio_kafka(load: Load, name: str) -> None:
    """aiokafka, idempotent."""
    asyncio.run(_aio_kafka(load, name))


async def _aio_kafka(load: Load, name: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=load.bootstrap_servers,
        client_id=name,
        enable_idempotence=True,
        linger_ms=2,
        request_timeout_ms=int(PATIENCE_S * 1000),
        retry_backoff_ms=50,
    )
    await producer.start()
    noting = []
    try:
        for index, record in load.records_of(name):
            sent = await producer.send(load.topic, record, partition=index)
            noting.append(asyncio.ensure_future(_note(load, name, record, sent)))
            if index == load.partitions - 1:
                await asyncio.sleep(0.005)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*noting)
    finally:
        await producer.stop()


async def _note(load: Load, name: str, record: bytes, sent: asyncio.Future[aiokafka.structs.RecordMetadata]) -> None:
    told = await sent
    load.note_acknowledged(name, told.partition, told.offset, record)


def java(load: Load, name: str, directory: Path) -> None:
    """Kafka's own VerifiableProducer; it chooses partitions by itself, one after another for a while."""
    config = directory / "producer.properties"
    config.write_text("enable.idempotence=true\nretries=1000000\nretry.backoff.ms=50\nacks=all\n")
    classpath = maven.classpath([maven.KAFKA_TOOLS, maven.SLF4J_SIMPLE])
    command = ["java", "-Xmx256M", "-cp", classpath, "org.apache.kafka.tools.VerifiableProducer"]
    command += ["--bootstrap-server", load.bootstrap_servers, "--topic", load.topic, "--command-config", str(config)]
    command += ["--throughput", str(JAVA_RECORDS_A_S)]
    with (directory / "errors").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                _note_java(load, name, json.loads(line))
                if load.stopping.is_set():
                    process.terminate()  # It sends what it has, and ends.
        finally:
            process.kill()


def _note_java(load: Load, name: str, said: dict[str, object]) -> None:
    match said:
        case {"name": "producer_send_success", "partition": int(index), "offset": int(offset), "value": str(value)}:
            load.note_acknowledged(name, index, offset, value.encode())
        case {"name": "producer_send_error"}:
            raise AssertionError(said)
        case _:
            pass
