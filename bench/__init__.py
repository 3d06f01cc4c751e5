"""Speed, side by side with Apache Kafka on the same machine in the same run.

`python -m bench.run` writes `bench/RESULTS.md`. What is counted is the CPU time of the broker's process, as the kernel
keeps it: it depends far less on how busy the rest of the machine is than throughput and latency do.
"""
