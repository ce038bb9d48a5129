"""Q1: where softmax attention beats linear attention."""
