"""Family stub."""
