"""Events that leave the site: definitions, runs, formats, targets."""
