"""The event log: events of BMCs, operations, alerts and sign-ins."""
