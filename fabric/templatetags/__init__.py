"""Words of the fabric for templates."""
