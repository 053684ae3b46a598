"""Adapters that make an `Index` a backend of other packages; each module needs the package that it is named after."""
