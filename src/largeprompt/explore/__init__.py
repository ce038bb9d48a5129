"""The explorer, ``largeprompt explore``: a page in the browser to play with the law, with training,
and with finished runs.

``state`` is what a link holds, ``code`` the calls that make it. ``numbers`` and ``training``
compute, ``reading`` reads runs, and ``picture`` draws for ``law_page``, ``training_page`` and
``runs_page``. ``app`` is the notebook that ties them together, with its ``controls``, and ``serve``
its server; these three need the extra ``explore``.
"""
