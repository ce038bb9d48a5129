"""How results show themselves: one look for pictures, small tables, results by prompt length."""
