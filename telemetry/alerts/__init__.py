"""What rings when: rules, alerts, silences, and whom they reach."""
