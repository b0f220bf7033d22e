"""Memory components: continuous cache and pointer, which recall recent words."""
