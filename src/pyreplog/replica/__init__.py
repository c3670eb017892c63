"""One partition's replication, without any I/O but its log: events in, effects out."""
