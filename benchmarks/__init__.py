"""What is run on composed hosts: workloads, runs and their records, sweeps, the performance model, recommendations."""
