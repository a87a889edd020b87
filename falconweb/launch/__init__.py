"""What `make up` runs: every process of one site on one machine, started in order and ended together."""
