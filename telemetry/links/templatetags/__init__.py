"""Tags of the pages about links."""
