"""What pytest leaves alone here: examples that the documentation executes when it is built, and
what that build writes.
"""

collect_ignore_glob = [
    "conf.py",
    "gallery/*",
    "auto_gallery/*",
    "reference/generated/*",
    "_build/*",
]
