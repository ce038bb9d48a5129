"""How far above the truth the certificates are."""
