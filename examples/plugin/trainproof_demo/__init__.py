"""A trainproof plug-in: a reader of lap-timer logs, and a rule on throughput."""
