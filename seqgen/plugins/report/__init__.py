"""Pages and pictures of what commands return."""
