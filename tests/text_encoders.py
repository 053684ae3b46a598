"""The small encoders of examples/text_search.py, for tests."""

import importlib.util

from test_project import ROOT

_spec = importlib.util.spec_from_file_location("text_search_example", ROOT / "examples" / "text_search.py")
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)
