"""The published experiment: its workloads, configurations, tables and figures beside what is predicted and run here."""
