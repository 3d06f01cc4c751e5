"""Administration of a cluster, one typed method a question.

A method that takes many things answers for each of them and raises nothing for a part; what concerns the whole request
is raised as KafkaError, and a cluster that cannot be reached as ClientError.
"""

from __future__ import annotations

from odradek.client.admin.access import AccessAdmin
from odradek.client.admin.cluster import ClusterAdmin
from odradek.client.admin.groups import GroupAdmin
from odradek.client.admin.reassignment import ReassignmentAdmin
from odradek.client.admin.topics import TopicAdmin
from odradek.client.admin.transactions import TransactionAdmin


class Admin(TopicAdmin, ReassignmentAdmin, GroupAdmin, TransactionAdmin, ClusterAdmin, AccessAdmin):
    """All of it on one set of connections."""

    async def __aenter__(self) -> Admin:
        return self


__all__ = ["Admin"]
