"""The Redfish client: discovery, readings, events and composition. Knows no database."""
