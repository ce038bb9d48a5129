"""The command ``largeprompt``: one thin module for each subcommand."""
