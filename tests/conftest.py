"""Servers and data that several tests need."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

# As the command line does: see relfrog.cli.main.
os.environ.setdefault("GOMP_SPINCOUNT", "100000")

# A shell that runs the tests in the background lets them ignore Ctrl-C, and so every process that
# they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Chosen by --hypothesis-profile; helpers.examples scales what a test asks for with max_examples.
# A busy machine is no reason to fail.
settings.register_profile(
    "ci", deadline=None, print_blob=True, max_examples=70,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=1000)
settings.load_profile("ci")

SHARED = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what needs the demo, which takes half a minute, and let one worker begin elsewhere.

    In a fresh checkout kernels are compiled for a quarter of a minute, in each worker that needs
    them. Of two workers the second begins in the middle: tests there need no kernels, and when it
    comes to others it finds what the first one has compiled.
    """
    for item in items:
        if "demo" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    yield  # those that are not asked for are left out
    plain = [item for item in items if item.path.parent.name in ("io", "importing")]
    others = [item for item in items if item.path.parent.name not in ("io", "importing")]
    half = min(len(items) // 2, len(others))
    items[:] = [*others[:half], *plain, *others[half:]]


class Once:
    """Makes each folder in the first process that asks for it; others wait, and read it.

    ``pytest -n`` runs tests in several processes, each with session fixtures of its own.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.made: dict[Path, set[tuple[str, int, int]]] = {}

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        folder, done = self.base / name, self.base / f"{name}.done"
        if folder not in self.made:
            with FileLock(self.base / f"{name}.lock"):
                if not done.exists():
                    shutil.rmtree(folder, ignore_errors=True)  # of someone who failed
                    folder.mkdir()
                    make(folder)
                    done.touch()
                self.made[folder] = _files(folder)
        return folder

    def changed(self) -> list[str]:
        """Files that are not what they were."""
        return sorted({name for f, was in self.made.items() for name, *_ in was ^ _files(f)})


def _files(folder: Path) -> set[tuple[str, int, int]]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in found}


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A sync matters if the power goes; a run has thirty of them, and tests have many runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the tests' own, which all processes share: most open the same datasets."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELFROG_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The four real databases, where they are at hand."""
    if not SHARED.is_dir():
        pytest.skip("the real databases are not here (../shared/data)")
    return SHARED


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """Folders that are made once for all processes that run tests."""
    base = tmp_path_factory.getbasetemp()
    made = Once(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    yield made
    assert made.changed() == [], "a test changed a folder that all tests read: take a copy"


@pytest.fixture(scope="session")
def store(once: Once) -> Path:
    """The dataset folder of a small store; whoever changes it takes a copy."""
    from small_store import make_store

    return once("store", make_store) / "store"


@pytest.fixture(scope="session")
def shop(store: Path, once: Once) -> Path:
    """The small store, with a list to be predicted: things that a person will order."""
    from small_store import make_shop

    return once("shop", lambda folder: make_shop(store, folder)) / "copy"


@pytest.fixture
def bare_shop(once: Once, tmp_path: Path) -> Path:
    """A dataset without tasks, of the test's own."""
    from bare_shop import make_bare_shop

    return Path(shutil.copytree(once("bare-shop", make_bare_shop) / "ds", tmp_path / "bare-shop"))


@pytest.fixture(scope="session")
def demo(once: Once) -> Path:
    """What `relfrog demo` leaves, after as little training as can be; and what it said."""
    from relfrog.cli.demo import run_demo
    from relfrog.datasets.demo import _package_data
    from relfrog.errors import DatasetError

    try:
        _package_data()
    except DatasetError as error:
        pytest.skip(str(error))

    def make(folder: Path) -> None:
        with open(folder / "said.txt", "w", encoding="utf-8") as file, redirect_stdout(file):
            run_demo(
                folder, False,
                {"epochs": 1, "steps_per_epoch": 2, "neighbors": 4, "features": "own",
                 "trials": 1, "networks": 1, "refit": "off"},
            )  # fmt: skip

    return once("demo", make)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder in which the examples of all commands run."""
    from helpers import sqlite

    def month(i: int) -> int:  # everyone orders for two months, then for two months not
        number = i % 12
        return (number + 2 * ((number + i % 5) % 4 > 1)) % 12 + 1

    days = ", ".join(
        f"({i}, {i % 5}, '2020-{month(i):02d}-{i % 28 + 1:02d}')" for i in range(1, 400)
    )
    sqlite(
        tmp_path / "shop.db",
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), "
        "ordered_at DATE);"
        "INSERT INTO customers VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd'), (4, 'e');"
        f"INSERT INTO orders VALUES {days};",
    )
    (tmp_path / "churn.sql").write_text(
        "SELECT t.timestamp, c.id, CAST(count(o.id) < 7 AS INTEGER) AS churn FROM timestamps t "
        "CROSS JOIN customers c LEFT JOIN orders o ON o.customer = c.id AND o.ordered_at > "
        "t.timestamp AND o.ordered_at <= t.timestamp + INTERVAL '{timedelta}' GROUP BY ALL"
    )
    return tmp_path


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real PostgreSQL server, started for these tests."""
    pgserver = pytest.importorskip("pgserver", reason="needs pgserver: pip install pgserver")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
        except Exception as error:  # no binary for this platform, or a root-less container
            pytest.skip(f"PostgreSQL does not start here: {error}")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def fresh_postgres(postgres: str) -> str:
    """The same server with nothing in its default schema."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MariaDB or MySQL server, where one is installed."""
    binary = shutil.which("mariadbd") or shutil.which("mysqld") or "/usr/sbin/mariadbd"
    install = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db")
    if not Path(binary).exists() or install is None:
        pytest.skip("no MySQL or MariaDB server here: apt-get install mariadb-server")
    folder = tmp_path_factory.mktemp("mysql")
    user = ["--user=root"] if os.geteuid() == 0 else []
    data, place = folder / "data", folder / "s.sock"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    method = "--auth-root-authentication-method=normal"
    subprocess.run(
        [install, "--no-defaults", f"--datadir={data}", method, *user], check=True, **quiet
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--datadir={data}", f"--socket={place}", f"--port={port}", *user]
    options += ["--bind-address=127.0.0.1", f"--pid-file={folder / 'pid'}"]
    server = subprocess.Popen([binary, "--no-defaults", *options], **quiet)
    import pymysql

    try:
        for _ in range(300):
            # A connection that is refused would leave an open socket behind.
            if place.exists():
                break
            time.sleep(0.1)
        else:
            pytest.skip("the MySQL server did not start within 30 s")
        pymysql.connect(unix_socket=str(place), user="root").close()
        yield f"mysql://root@localhost/mysql?unix_socket={place}"
    finally:
        server.terminate()
        server.wait(30)
