"""The limits in length and in time do not commute."""
