"""Allocation files: which device is attached to which host, exported and imported as JSON or YAML.

`schema` is the JSON Schema of a file; `reader` parses bytes to a document, or to problems with their positions; `rules`
has the hardware that a user sees as values, which `selectors` read from the database; `pairing` and `matching` find the
counterparts of a file's entries on the site, `mapping` reports them with the changes; `document` writes files, and
`services` makes a plan of one.
"""
