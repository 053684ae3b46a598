"""What the stages are composed into: segments, and the search over them."""
