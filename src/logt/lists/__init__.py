"""The default index: inverted lists of sparse codes and residual codes."""
