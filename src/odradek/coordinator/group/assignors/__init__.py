"""Server-side assignors of KIP-848: who shall own which partition, without a word about how to get there.

An assignor is a pure function of the members, their subscriptions and what they were assigned before. Racks play no
part, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from odradek.coordinator.group.assignors.range import assign_range
from odradek.coordinator.group.assignors.spec import Assignment, GroupSpec
from odradek.coordinator.group.assignors.uniform import assign_uniform

Assignor: TypeAlias = Callable[[GroupSpec], dict[str, Assignment]]

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that clients and `group.consumer.assignors` use."""
