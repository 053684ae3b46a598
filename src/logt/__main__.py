"""python -m logt: the command line."""

from logt.cli.main import main

main()
