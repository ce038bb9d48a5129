"""One writer for each run folder."""

import contextlib
import errno
import os
import subprocess
import sys

import filelock
import pytest

from largeprompt.runs import lock
from largeprompt.runs.files import RunError, StorageError
from largeprompt.runs.lock import locked


def test_the_second_is_refused_until_the_first_ends(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(RunError, match="is being computed by another command"),
        locked(tmp_path, 0.1),
    ):
        pass
    with locked(tmp_path):
        pass


def test_a_lock_ends_with_the_process_that_held_it(tmp_path):
    take = f"held = filelock.FileLock({str(tmp_path / lock.NAME)!r}); held.acquire()"
    code = f"import filelock; {take}; print('held', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another command"), locked(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("reason", [errno.ENOLCK, errno.ENOTSUP, errno.EROFS])
def test_a_file_system_that_cannot_lock_holds_nothing(tmp_path, monkeypatch, reason):
    def refuse(self, *args, **options):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    expected = (
        pytest.raises(StorageError, match="cannot write")
        if reason == errno.EROFS
        else contextlib.nullcontext()
    )
    with expected, locked(tmp_path):
        pass
