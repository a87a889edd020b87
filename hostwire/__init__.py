"""The messages between the site and the agents of hosts: structs, and how they are signed. It imports neither."""
