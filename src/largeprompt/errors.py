"""The errors of largeprompt: each says which argument, what was given, what is allowed, and what to
do instead.
"""


class LargePromptError(ValueError):
    """Base of every error that the library raises on purpose."""


class InvalidArgumentError(LargePromptError):
    """An argument has the wrong shape, type, dtype, device or value."""

    def __init__(self, name: str, given: str, allowed: str, remedy: str = "") -> None:
        self.name, self.given, self.allowed, self.remedy = name, given, allowed, remedy
        super().__init__(
            f"{name}: got {given}; allowed: {allowed}." + (f" {remedy}" if remedy else "")
        )

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        """Copy and pickle by the parts: worker processes send their errors back."""
        return type(self), (self.name, self.given, self.allowed, self.remedy)


class TiltDomainError(InvalidArgumentError):
    """The cumulant generating function is infinite at this tilt: attention has no infinite-prompt
    limit there.
    """


class NoMomentError(InvalidArgumentError):
    """The law has no such moment (the mean of a Student-t with one degree of freedom, say)."""


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: modules in C that it meets while they load raise
    ImportError of it.
    """
    return isinstance(error, KeyboardInterrupt) or (
        error is not None and interrupted(error.__cause__ or error.__context__)
    )
