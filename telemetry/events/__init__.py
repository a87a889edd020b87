"""What happened: one log of BMCs, operations, alerts and sign-ins."""
