"""What an index is, whatever its method: snapshots, ids, building and searching."""
