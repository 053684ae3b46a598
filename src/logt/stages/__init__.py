"""The stages of a method, one module per arrow: X -> units -> Y -> Ŷ -> U -> estimates."""
