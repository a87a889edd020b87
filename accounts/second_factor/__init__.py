"""Second factors of people: passkeys, authenticator apps, recovery codes."""
