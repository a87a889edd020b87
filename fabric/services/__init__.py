"""What may be done to the fabric. Services write; they are keyword-only and typed."""
