"""The default index on a GPU: the same lists, codes and graph, searched and built there.

On the device "cpu", the same code runs with NumPy, and with a reference implementation of each kernel.
"""
