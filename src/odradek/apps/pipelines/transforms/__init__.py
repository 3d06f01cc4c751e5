"""Pure functions from DataFrames to DataFrames that pipelines share: no sources, no sinks, no session."""
