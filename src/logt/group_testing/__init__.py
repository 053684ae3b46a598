"""The methods of the paper, in its order: X -> units -> Y -> Ŷ -> U -> estimates -> correction."""
