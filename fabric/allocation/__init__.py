"""Allocation files: who is attached where, as JSON or YAML, written and read back.

`schema` says what a file may look like, `reading` turns bytes into a document or problems with their places, `site` is
the hardware as a person sees it, `mapping` puts the one onto the other, `files` makes a plan of it.
"""
