"""Pure functions from DataFrames to DataFrames that pipelines share: no sources, no sinks, no session."""

from __future__ import annotations

from odradek.apps.pipelines.transforms.latest import latest_per_key
from odradek.apps.pipelines.transforms.skew import SALT, salted, skew_report

__all__ = ["SALT", "latest_per_key", "salted", "skew_report"]
