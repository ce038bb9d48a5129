"""In-context learning: tasks, exact risks at every length, the dynamics that descend them, how far
these are apart, and optima.
"""

import lazy_loader

# the names are listed in __init__.pyi
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
