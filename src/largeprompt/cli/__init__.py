"""The command ``largeprompt``: one thin module for each subcommand."""

from largeprompt.cli.app import app

__all__ = ["app"]
