"""Benchmark runs on this host: each has a folder and a supervisor, a process that outlives the agent."""
