"""An index on disk."""
