"""Memory components that recall recent words: the pointer."""
