"""A pretrained in-context learner of tables: its prompt has no order, so that it is a measure."""
