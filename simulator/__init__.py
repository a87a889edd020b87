"""A Falcon 4016 in software: a Redfish service of its own process, over HTTPS."""
