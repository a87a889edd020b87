"""Acts that a second administrator approves, by a policy, before they are carried out."""
