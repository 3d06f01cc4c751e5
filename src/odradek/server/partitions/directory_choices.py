"""In which log directory new partitions went: a broker with several chooses one, and the cluster is to know it.

`DirectoryAssignments` does the telling; this says what there is to be told, and whether the cluster has a place for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.ids import NodeId
from odradek.metadata.controller.directories import DirectoryAssignment
from odradek.metadata.image import Changes, Image
from odradek.metadata.image.topics import PartitionsOf
from odradek.server.partitions.directory_assignments import DirectoryAssignments
from odradek.server.partitions.hosting import whole_image
from odradek.server.partitions.replicas import Replicas


class DirectoryChoices:
    """Nothing is told before this broker's directories are on record: where partitions are says nothing before."""

    def __init__(self, node_id: NodeId, replicas: Replicas, assignments: DirectoryAssignments) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._assignments = assignments
        self._are_known = False

    def tell_all(self, image: Image) -> None:
        """All partitions are open."""
        self._are_known = self._are_on_record(image)
        self.tell(whole_image(image).created)

    def tell_changes(self, image: Image, changes: Changes) -> None:
        """Where partitions are that are new, here or at all; and all, once the cluster has a place for it, as
        metadata.version was raised."""
        if self._are_known:
            self.tell((*changes.topics.created, *changes.topics.changed))
        elif self._are_on_record(image):
            self._are_known = True
            self.tell(whole_image(image).created)

    def tell(self, created: Iterable[PartitionsOf]) -> None:
        """Where these are, as far as the cluster does not know."""
        chosen = self._chosen(created) if self._are_known else ()
        if chosen:
            self._assignments.tell(chosen)

    def _are_on_record(self, image: Image) -> bool:
        own = image.cluster.brokers.get(self._node_id)
        return own is not None and bool(own.log_dirs)

    def _chosen(self, partitions: Iterable[PartitionsOf]) -> list[DirectoryAssignment]:
        chosen = []
        for some in partitions:
            for index in some.partitions:
                hosted = self._replicas.find_by_id(some.topic.topic_id, index)
                if hosted is None:
                    continue
                directory_id = hosted.directory.directory_id
                if directory_id not in some.topic.partitions[index].directories:
                    chosen.append(DirectoryAssignment(some.topic.topic_id, index, directory_id))
        return chosen
