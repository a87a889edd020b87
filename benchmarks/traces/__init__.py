"""Imported execution traces: kept, shown, and played on hosts of this site or published compositions."""
