"""Q2: does the picture survive depth?"""
