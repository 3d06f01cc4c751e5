"""Once nothing goes wrong any more, all agree on a leader, living brokers are unfenced, dead ones are fenced, and
changes are answered."""

from __future__ import annotations

from odradek.sim.history import History, NodeView, QuorumSettled

NOBODY = -1


def check(history: History) -> list[str]:
    return [
        f"after {event.waited_s:.0f} quiet seconds {wrong}"
        for event in history.events
        if isinstance(event, QuorumSettled)
        for wrong in unsettled(event.nodes) + ([] if event.answers else ["no change of metadata is answered"])
    ]


def unsettled(nodes: tuple[NodeView, ...]) -> list[str]:
    """What is still wrong with a cluster, in words."""
    alive = [node for node in nodes if node.alive]
    beliefs = sorted({(node.epoch, node.leader_id) for node in alive})
    wrong = []
    if len(beliefs) != 1 or beliefs[0][1] == NOBODY:
        told = ", ".join(f"node {node.node_id} has {node.leader_id} in epoch {node.epoch}" for node in alive)
        wrong.append(f"there is no leader that all know: {told}")
    for node in alive:
        wrong += _misjudged(node, nodes)
    return wrong


def _misjudged(node: NodeView, nodes: tuple[NodeView, ...]) -> list[str]:
    brokers = {} if node.image is None else node.image.cluster.brokers
    wrong = []
    for other in nodes:
        broker = next((broker for broker_id, broker in brokers.items() if broker_id == other.node_id), None)
        if other.is_broker and other.alive and (broker is None or broker.fenced):
            wrong.append(f"the living broker {other.node_id} is fenced or unknown, as node {node.node_id} has it")
        elif other.is_broker and not other.alive and broker is not None and not broker.fenced:
            wrong.append(f"the dead broker {other.node_id} is not fenced, as node {node.node_id} has it")
    return wrong
