"""The least risk that a layer can have, where it is found by a search over few numbers."""
