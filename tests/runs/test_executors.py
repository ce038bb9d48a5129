"""Executors by name: the same bytes over processes, threads and Dask, and errors that say what to
do.
"""

import contextlib
import dataclasses
import logging
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import toy_studies
from toy_studies import SmallConfig, calls

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.execute import compute, execute
from largeprompt.runs.executors import default_workers, executor
from largeprompt.runs.files import RunError
from largeprompt.runs.find import find_study
from largeprompt.runs.finish import Job
from largeprompt.runs.netcdf import encode, from_bytes
from largeprompt.runs.pool import LOGGER, WORKER
from largeprompt.runs.store import Run

FOUND = find_study(f"{toy_studies.__file__}:STUDY")
CONFIG = SmallConfig()


def computed(folder, found, config=CONFIG):
    run = Run.create(folder, FOUND, config, quick=False, rerun="")
    execute(run, FOUND, config, found)
    return (run.folder / "dataset.nc").read_bytes()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bytes that threads of this process write."""
    with ThreadPoolExecutor(2) as threads:
        return numbers(computed(tmp_path_factory.mktemp("runs") / "small", threads))


def numbers(content):
    """All but the number of threads, which is that of the process."""
    return encode(from_bytes(content).drop_vars("threads"))


@pytest.mark.parametrize(
    "name", ["concurrent.futures:ThreadPoolExecutor", "concurrent.futures:ProcessPoolExecutor"]
)
def test_anything_that_keeps_the_contract(tmp_path, expected, name):
    with executor(name, 2) as found:
        assert isinstance(found, ThreadPoolExecutor | ProcessPoolExecutor)
        assert numbers(computed(tmp_path / "small", found)) == expected


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "clusters.md"


def from_page(name):
    """A function as the page has it."""
    code = re.search(
        rf"```python\n(def {name}.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )[1]
    names = {}
    exec(code, names)
    return code, names[name]


def test_the_script_of_dask_jobqueue(monkeypatch):
    """As far as one gets without a queue: one core, one thread, one process."""
    jobqueue, asked = pytest.importorskip("dask_jobqueue"), []
    monkeypatch.setattr(
        jobqueue.SLURMCluster, "scale", lambda cluster, count: asked.append((cluster, count))
    )
    assert callable(from_page("slurm")[1](3).submit)
    ((cluster, count),) = asked
    script = cluster.job_script()
    cluster.close()
    assert count == 3
    for words in (
        "#SBATCH -n 1\n",
        "#SBATCH --cpus-per-task=1\n",
        "#SBATCH -t 01:00:00\n",
        "OMP_NUM_THREADS=1\n",
        "--nthreads 1 ",
    ):
        assert words in script


def test_the_cluster_of_the_page_without_a_queue(tmp_path, expected, distributed, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.py").write_text(from_page("trial")[0])
    with executor("cluster:trial", 1) as found:
        assert numbers(computed(tmp_path / "small", found)) == expected


def test_workers_with_other_sources_refuse(tmp_path, distributed):
    run = Run.create(tmp_path / "small", FOUND, CONFIG, quick=False, rerun="")
    other = dataclasses.replace(run, code="of another version")
    with (
        distributed.LocalCluster(
            n_workers=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        executor(f"dask:{cluster.scheduler_address}") as found,
    ):
        ended = list(compute([Job(other, FOUND, CONFIG, ("size: 1",))], found))
    assert "worker's code of small is not that of the run" in ended[0].outcome.failure


def test_a_limit_that_an_executor_cannot_keep_is_refused():
    with (
        pytest.raises(InvalidArgumentError, match="--cell-limit: got 3 with --executor"),
        executor("concurrent.futures:ThreadPoolExecutor", 1, 3.0),
    ):
        pass


def test_what_is_no_executor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def refuse():\n    raise ZeroDivisionError('no cluster')\n\ndef three():\n    return 3\n"
    )
    for name in (
        "",
        "remote",
        "dask:nowhere",
        "dask:",
        "dask:foo://bar",
        "dask:tcp://",
        "dask:tcp://h:99999999",
        "dask:tcp://h:x",
        "no.such:thing",
        "operator:nothing",
        "mine:three",
        "..:x",
        "x:",
    ):
        with pytest.raises(InvalidArgumentError, match="--executor: got"), executor(name):
            pass
    with (
        pytest.raises(
            RunError,
            match=r"mine:refuse: the executor cannot be made \(ZeroDivisionError: no cluster",
        ),
        executor("mine:refuse"),
    ):
        pass
    assert default_workers() == min(os.cpu_count(), 8)


def test_left_by_an_exception_nothing_goes_on(tmp_path):
    (tmp_path / "sleep 1").touch()
    begun = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt), executor("local", 1) as found:
        found.submit(toy_studies.compute, SmallConfig(str(tmp_path)), 1, print)
        while not calls(tmp_path):
            time.sleep(0.05)
            assert time.monotonic() - begun < 50
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 55  # it would sleep for a minute


@pytest.fixture
def distributed():
    return pytest.importorskip("distributed")


def test_a_cluster_of_processes(tmp_path, expected, distributed, caplog):
    run = Run.create(tmp_path / "small", FOUND, CONFIG, quick=False, rerun="")
    before = logging.getLogger("distributed").level
    with executor("dask", 1) as found:
        with caplog.at_level(logging.INFO, LOGGER.name):
            assert numbers(computed(tmp_path / "small", found)) == expected
        assert set(run.dataset.threads.values) == {WORKER["OMP_NUM_THREADS"]}
    assert {record.getMessage() for record in caplog.records} >= {"at size 1", "at size 2"}
    assert logging.getLogger("distributed").level == before


def test_a_cluster_whose_workers_die_as_they_begin(distributed, monkeypatch):
    asked = []

    def refuse(**options):
        asked.append(options)
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(distributed, "LocalCluster", refuse)
    with (
        pytest.raises(
            RunError, match=r"no Dask cluster can be started here \(Nanny failed to start"
        ),
        executor("dask", 1),
    ):
        pass
    assert len(asked) == 3


def test_a_cluster_of_threads_that_is_there(tmp_path, expected, distributed):
    """Its client is this process's default, and its workers are threads of this process."""
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster),
        executor(f"dask:{cluster.scheduler_address}") as found,
    ):
        assert numbers(computed(tmp_path / "small", found)) == expected
        with ThreadPoolExecutor(2) as threads:
            assert numbers(computed(tmp_path / "threads", threads)) == expected


def test_a_scheduler_that_does_not_answer(distributed, monkeypatch):
    monkeypatch.setattr("largeprompt.runs.executors.PATIENCE", 0.5)
    with (
        pytest.raises(RunError, match="no Dask scheduler answers at tcp:"),
        executor("dask:tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    "content",
    ["root:x:0:0", "[" * 100_000, "{}", '{"address": 3}', '{"address": "foo://x:1"}', None],
)
def test_what_is_no_file_of_a_scheduler(distributed, tmp_path, content):
    """Said before a client is made: one with a wrong address takes a minute to close, and ends in a
    trace.
    """
    place = tmp_path / "scheduler.json"
    os.mkfifo(place) if content is None else place.write_text(content)
    with (
        pytest.raises(InvalidArgumentError, match=r"--executor: got 'dask:.*' \("),
        executor(f"dask:{place}"),
    ):
        pass


def test_a_file_of_a_scheduler(distributed, tmp_path, monkeypatch):
    monkeypatch.setattr("largeprompt.runs.executors.PATIENCE", 0.5)
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://127.0.0.1:9"}')
    with (
        pytest.raises(RunError, match="no Dask scheduler answers at tcp:"),
        executor(f"dask:{tmp_path / 'scheduler.json'}"),
    ):
        pass


def test_without_dask_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(InvalidArgumentError, match=r"pip install 'largeprompt\[cluster\]'"),
        executor("dask"),
    ):
        pass
