"""Alerts: rules, alerts, silences, routes and deliveries."""
