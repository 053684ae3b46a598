"""Estimators for scikit-learn; they are defined in `logt.integrations.sklearn`."""

from logt.integrations.sklearn import *  # noqa: F403
from logt.integrations.sklearn import __all__  # noqa: F401
