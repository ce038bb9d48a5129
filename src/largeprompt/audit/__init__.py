"""Audit of real transformers: which heads read only the moments of their prompt, and which select
tokens.

Needs the extra ``models`` for models of transformers; :class:`Heads` and :func:`audit_heads` take
bare tensors.
"""

import lazy_loader

# the names are listed in __init__.pyi
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
