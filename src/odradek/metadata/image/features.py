"""Which level of each feature the cluster has finalized."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.metadata.features import KRAFT_VERSION, METADATA_VERSION, supported_feature
from odradek.metadata.records import FeatureLevelRecord
from odradek.protocol.codec import Message
from odradek.values import value


@value
class FeaturesImage:
    """`metadata_version` is 0 before the bootstrap records were replayed; level 0 of any other feature means absent."""

    metadata_version: int
    finalized: dict[str, int]

    def level(self, name: str) -> int:
        return self.metadata_version if name == METADATA_VERSION else self.finalized.get(name, 0)

    def served(self, kraft_version: int) -> dict[str, int]:
        """Finalized levels to tell clients: of features that this node serves, since a client acts on what it is told.

        kraft.version comes from the quorum's own control records. A directory that Apache Kafka formatted finalizes
        more; those levels stay on record and are not announced.
        """
        levels = {name: level for name, level in self.finalized.items() if supported_feature(name) is not None}
        if self.metadata_version:
            levels[METADATA_VERSION] = self.metadata_version
        if kraft_version:
            levels[KRAFT_VERSION] = kraft_version
        return dict(sorted(levels.items()))

    def records(self) -> Iterator[Message]:
        """What a snapshot holds of this; metadata.version comes first because it decides how the rest is written."""
        if self.metadata_version:
            yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.metadata_version)
        for name, level in self.finalized.items():
            if name != KRAFT_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=level)


NO_FEATURES = FeaturesImage(metadata_version=0, finalized={})


class FeaturesDelta:
    """Changes to features on their way into a new image."""

    def __init__(self, base: FeaturesImage) -> None:
        self._base = base
        self._levels: dict[str, int] = {}

    def replay(self, record: FeatureLevelRecord) -> None:
        self._levels[record.name] = record.feature_level

    def apply(self) -> FeaturesImage:
        if not self._levels:
            return self._base
        levels = {**self._base.finalized, **self._levels}
        metadata_version = levels.pop(METADATA_VERSION, self._base.metadata_version)
        finalized = {name: level for name, level in sorted(levels.items()) if level}
        return FeaturesImage(metadata_version, finalized)
