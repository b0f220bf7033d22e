"""What texts have copied, and texts that copy nothing."""
