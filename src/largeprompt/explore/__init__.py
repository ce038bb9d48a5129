"""The explorer, ``largeprompt explore``: a page in the browser to play with.

``state`` is what a link holds, ``code`` the calls that make it. ``numbers`` computes, ``reading``
reads runs, and ``picture`` and ``text`` draw for ``law_page``, ``training_page``, ``scaling_page``
and ``runs_page``. ``app`` is the notebook that ties them together, with its ``controls``, and
``serve`` its server; these three need the extra ``explore``.
"""
