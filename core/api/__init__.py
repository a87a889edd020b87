"""What the endpoints of all rooms share: fields, requests, and their description."""
