"""The three regimes over score variance and prompt length."""
