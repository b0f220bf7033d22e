"""Model architectures, each a configuration and an equation as in its paper."""
