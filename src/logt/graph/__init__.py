"""The neighbor graph: how it is built, stored and read, and diffusion on it."""
