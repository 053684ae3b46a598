"""python -m logt: the command line."""

from logt.cli import main

main()
