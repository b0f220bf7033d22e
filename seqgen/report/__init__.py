"""Pictures of what tasks return."""
