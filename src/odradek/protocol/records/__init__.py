"""Record batches: their header, their records, the control records among them, compression and checksums.

Works on bytes handed in and nothing else. What cannot be read raises `KafkaError` with the code that Kafka answers, and
memory stays bounded whatever the bytes declare.
"""
