"""What is measured: polling and live push."""
