"""One module for each family of figures; each function takes a dataset and gives a Matplotlib figure."""
