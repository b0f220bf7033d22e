"""Models that recall what they have stored or have just read."""
