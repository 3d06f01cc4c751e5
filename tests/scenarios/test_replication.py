"""One partition on three brokers, told step by step without a network: who has what, and what is committed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.scenarios.transcripts import play

from odradek.ids import LeaderEpoch, NodeId, Offset, Uuid
from odradek.ports import FileSlice
from odradek.protocol.errors import KafkaError
from odradek.protocol.records.batch import build_batch
from odradek.protocol.records.record import Record
from odradek.replication import follower
from odradek.replication.broker_liveness import BrokerLiveness
from odradek.replication.isr import IsrProposal
from odradek.replication.partition import Partition, PartitionState
from odradek.replication.truncation import divergence
from odradek.sim.disk import Device
from odradek.sim.loop import Life, SimulatedLoop
from odradek.sim.trace import Trace
from odradek.storage.config import LogConfig
from odradek.storage.log import Log

STORIES = Path(__file__).parent / "replication"
NOW_MS = 1_700_000_000_000


class Story:
    """Three replicas, and a controller that does what the story says."""

    def __init__(self) -> None:
        self._partitions: dict[int, Partition] = {}
        self._around: dict[int, BrokerLiveness] = {}
        self._state = PartitionState(NodeId(-1), LeaderEpoch(-1), -1, (), ())
        self._proposals: dict[int, IsrProposal] = {}
        self._now_ms = 0

    def run(self, name: str, words: dict[str, str]) -> list[str]:
        command = getattr(self, f"_{name.replace('-', '_')}", None)
        assert command is not None, f"no such command: {name}"
        try:
            lines: list[str] = command(words)
        except KafkaError as refused:
            return [f"! {refused.code.name}"]
        return lines

    # What the cluster agrees on.

    def _topic(self, words: dict[str, str]) -> list[str]:
        replicas = _nodes(words["replicas"])
        config = LogConfig(min_insync_replicas=int(words.get("min", "1")))
        device = Device(random.Random(0), Trace(SimulatedLoop()))  # type: ignore[abstract]
        for replica in replicas:
            device.provide(f"/{replica}")
            log = Log.open(
                device.attach(Life(f"node {replica}")),
                f"/{replica}/t-0",
                topic="t",
                partition=0,
                topic_id=Uuid(bytes(range(16))),
                config=config,
                now_ms=NOW_MS,
            )
            around = self._around[replica] = BrokerLiveness(max_lag_ms=int(words.get("max-lag", "30000")))
            around.registered = {each: 10 + each for each in replicas}
            around.active = dict.fromkeys(replicas)
            around.broker_epoch = 10 + replica
            self._partitions[replica] = Partition(replica, log, around)
        state = PartitionState(replicas[0], LeaderEpoch(0), 0, replicas, _nodes(words.get("isr", words["replicas"])))
        return self._agree(state, replicas)

    def _elect(self, words: dict[str, str]) -> list[str]:
        before = self._state
        state = PartitionState(
            NodeId(int(words["0"])),
            LeaderEpoch(before.leader_epoch + 1),
            before.partition_epoch + 1,
            before.replicas,
            _nodes(words["isr"]),
        )
        return self._agree(state, _nodes(words.get("told", _text(before.replicas))))

    def _fence(self, words: dict[str, str]) -> list[str]:
        """The controller fences a broker, which takes it out of the ISR."""
        gone = NodeId(int(words["0"]))
        for around in self._around.values():
            around.active.pop(gone, None)
        before = self._state
        isr = tuple(each for each in before.isr if each != gone)
        state = PartitionState(before.leader, before.leader_epoch, before.partition_epoch + 1, before.replicas, isr)
        return self._agree(state, before.replicas)

    def _tell(self, words: dict[str, str]) -> list[str]:
        """A broker hears what the others know already."""
        return self._agree(self._state, _nodes(words["0"]))

    def _agree(self, state: PartitionState, told: tuple[NodeId, ...]) -> list[str]:
        self._state = state
        for replica in told:
            self._partitions[replica].apply(state, now_ms=self._now_ms)
        return [
            f"leader={state.leader} epoch={state.leader_epoch} partition_epoch={state.partition_epoch} "
            f"isr={_text(state.isr)}",
            *self._show({}),
        ]

    def _answer(self, words: dict[str, str]) -> list[str]:
        """The controller's answer to a leader's proposal."""
        leader = int(words["0"])
        proposal = self._proposals.pop(leader)
        partition = self._partitions[leader]
        if words["1"] == "refused":
            partition.isr_refused(proposal, now_ms=self._now_ms)
            return self._show({})
        before = self._state
        self._state = PartitionState(
            before.leader, before.leader_epoch, before.partition_epoch + 1, before.replicas, proposal.isr
        )
        partition.isr_agreed(
            proposal,
            leader_epoch=before.leader_epoch,
            partition_epoch=self._state.partition_epoch,
            isr=proposal.isr,
            now_ms=self._now_ms,
        )
        return [f"isr={_text(proposal.isr)} partition_epoch={self._state.partition_epoch}", *self._show({})]

    # What replicas do.

    def _produce(self, words: dict[str, str]) -> list[str]:
        number = int(words["0"])
        partition = self._partitions[number]
        count = int(words.get("records", "1"))
        batch = build_batch([Record(value=b"%d" % each) for each in range(count)], timestamp=NOW_MS)
        before = partition.log.log_end_offset
        info = partition.append(memoryview(batch), now_ms=NOW_MS, acks_all=words.get("acks") == "all")
        partition.note_append(before, now_ms=self._now_ms, wall_ms=NOW_MS)
        line = f"{number}: append [{info.base_offset},{info.last_offset + 1}) epoch={partition.state.leader_epoch}"
        return [f"{line} hw={partition.log.high_watermark}{self._fate(partition, words)}"]

    def _fate(self, partition: Partition, words: dict[str, str]) -> str:
        if words.get("acks") != "all":
            return ""
        outcome = partition.outcome(partition.log.log_end_offset)
        return " parked" if outcome is None else f" {outcome.name}"

    def _outcome(self, words: dict[str, str]) -> list[str]:
        outcome = self._partitions[int(words["0"])].outcome(int(words["end"]))
        return ["parked" if outcome is None else outcome.name]

    def _fetch(self, words: dict[str, str]) -> list[str]:
        """One Fetch of a follower, from the leader it knows of."""
        number = NodeId(int(words["0"]))
        own = self._partitions[number]
        leader = self._partitions[int(words.get("from", own.state.leader))]
        position = follower.position_of(own.log)
        asked = f"{number} asks {leader.node_id} for {position.fetch_offset} after epoch {position.last_fetched_epoch}"
        epoch = int(words.get("broker-epoch", 10 + number))
        leader.require_follower(number, epoch, own.state.leader_epoch)
        diverging = divergence(
            leader.log, fetch_offset=position.fetch_offset, last_fetched_epoch=position.last_fetched_epoch
        )
        if diverging is not None:
            follower.cut_diverged(own.log, diverging)
            cut = f"cut to {own.log.log_end_offset}"
            return [f"{asked}: epoch {diverging.epoch} ended at {diverging.end_offset}, {cut}"]
        lines = []
        noted = leader.update_follower_fetch_state(
            number,
            fetch_offset=position.fetch_offset,
            log_start_offset=position.log_start_offset,
            broker_epoch=epoch,
            now_ms=self._now_ms,
        )
        if noted.high_watermark_moved:
            lines.append(f"{leader.node_id}: hw={leader.log.high_watermark}")
        if noted.proposal is not None:
            lines.append(self._proposed(leader.node_id, noted.proposal))
        read = leader.log.read(
            position.fetch_offset, max_bytes=1 << 20, end_offset=leader.log.log_end_offset, minimum_one=True
        )
        records = read.records.read() if isinstance(read.records, FileSlice) else read.records
        follower.take(
            own.log,
            memoryview(bytearray(records)),
            fetch_offset=position.fetch_offset,
            high_watermark=leader.log.high_watermark,
            log_start_offset=leader.log.log_start_offset,
            now_ms=NOW_MS,
        )
        got = f"[{position.fetch_offset},{own.log.log_end_offset}) hw={own.log.high_watermark}"
        return [f"{asked}: {got}", *lines]

    def _check(self, words: dict[str, str]) -> list[str]:
        """A leader looks for followers that lag."""
        number = NodeId(int(words["0"]))
        proposal = self._partitions[number].lagging(self._now_ms)
        return ["nobody lags" if proposal is None else self._proposed(number, proposal)]

    def _proposed(self, number: NodeId, proposal: IsrProposal) -> str:
        self._proposals[number] = proposal
        members = ",".join(f"{each}@{epoch}" for each, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True))
        return f"{number}: AlterPartition isr={members} partition_epoch={proposal.partition_epoch}"

    def _latest(self, words: dict[str, str]) -> list[str]:
        """What a consumer is told that asks for the end."""
        partition = self._partitions[int(words["0"])]
        partition.require_leader()
        return [f"{partition.log.high_watermark}" if partition.knows_its_end else "! OFFSET_NOT_AVAILABLE"]

    def _delete(self, words: dict[str, str]) -> list[str]:
        self._partitions[int(words["0"])].log.delete_records_before(Offset(int(words["before"])))
        return self._show({})

    def _pass(self, words: dict[str, str]) -> list[str]:
        self._now_ms += int(words["0"])
        return [f"now={self._now_ms}"]

    def _show(self, words: dict[str, str]) -> list[str]:
        return [
            f"{number}: hw={partition.log.high_watermark} end={partition.log.log_end_offset} "
            f"epochs={' '.join(f'{epoch}@{start}' for epoch, start in partition.log.leader_epochs.entries) or '-'}"
            for number, partition in self._partitions.items()
        ]


def _nodes(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(each)) for each in text.split(","))


def _text(nodes: tuple[NodeId, ...]) -> str:
    return ",".join(map(str, nodes))


@pytest.mark.parametrize("story", sorted(STORIES.glob("*.txt")), ids=lambda path: path.stem)
def test_stories(story: Path, request: pytest.FixtureRequest) -> None:
    play(story, Story().run, rewrite=request.config.getoption("--rewrite"))
