"""Servers and data that several tests need."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

# As the command line does: see relfrog.cli.main.
os.environ.setdefault("GOMP_SPINCOUNT", "100000")

SHARED = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The four real databases, where they are at hand."""
    if not SHARED.is_dir():
        pytest.skip("the real databases are not here (../shared/data)")
    return SHARED


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset folder of a small store; whoever changes it takes a copy."""
    from small_store import make_store

    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def shop(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small store, with a list to be predicted: things that a person will order."""
    import relfrog
    from small_store import LIST, copied

    folder = copied(store, tmp_path_factory.mktemp("shop"))
    relfrog.add_task(
        folder, "list", LIST, type="recommendation", source="people", target="things",
        horizon="20 days", k=3,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `relfrog demo` leaves, after as little training as can be; and what it said."""
    from relfrog import DatasetError
    from relfrog.cli.demo import run_demo
    from relfrog.datasets.demo import _package_data

    try:
        _package_data()
    except DatasetError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("demo")
    with open(folder / "said.txt", "w", encoding="utf-8") as file, redirect_stdout(file):
        run_demo(folder, False, {"epochs": 1, "steps_per_epoch": 2, "neighbors": 4})
    return folder


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
