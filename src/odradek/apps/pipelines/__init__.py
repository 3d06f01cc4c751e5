"""Data pipelines: Spark does the work, Kafka tools can see it.

A pipeline is a small file: sources and sinks are declared, datasets are functions from DataFrames to DataFrames.
Spark's own connector reads, state and windows are Spark's, the lake is Parquet. What is added here is what Spark lacks:
offsets that Kafka's tools can see, dead letters, progress, errors that say what to do, and fixtures for tests.

May start a Spark session and speak to brokers as any client does. Nothing in the house imports it, and importing it
imports neither Spark nor Java: that waits until a pipeline is run.
"""
