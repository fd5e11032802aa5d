"""Copies by way of servers: a real S3 server, one that speaks HDFS's protocol, and drivers' errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import gcs
import webhdfs
from relfrog.cluster import addresses
from relfrog.cluster.addresses import Address
from relfrog.cluster.replica import SHARE, Replica, obtain, replicate, share
from relfrog.errors import StoreError, UsageError
from relfrog.store.parts import open_store
from relfrog.support.folder_check import check_inside

#: A remark of Google's driver's own library about itself, which Python shows to nobody.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

KEY, SECRET = "AKIAEXAMPLE000000000", "hush/this-is-no-real-secret"


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The address of an S3 server."""
    reason = "needs an S3 server: pip install 'relfrog[s3]' 'moto[s3]' flask flask-cors"
    pytest.importorskip("s3fs", reason=reason)
    pytest.importorskip("flask_cors", reason=reason)
    server = pytest.importorskip("moto.server", reason=reason)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty folder of that server, with the user's settings in the environment."""
    given = {
        "AWS_ENDPOINT_URL_S3": s3_server, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    forget_drivers()
    fsspec.filesystem("s3").mkdir("bucket")
    yield "s3://bucket/folder"
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    forget_drivers()
    fsspec.filesystem("s3").rm("bucket", recursive=True)


def forget_drivers() -> None:
    """Drivers keep the settings that they were opened with."""
    for protocol in ("s3", "gs", "webhdfs"):
        if protocol in fsspec.registry:  # of those that have been imported
            fsspec.registry[protocol].clear_instance_cache()


@pytest.fixture
def hdfs() -> Iterator[str]:
    """The address of an empty folder of a server that speaks HDFS's protocol."""
    with webhdfs.serving() as port:
        yield f"webhdfs://127.0.0.1:{port}/folder"
    forget_drivers()


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[gcs.Storage]:
    """A server that speaks as Google's storage does, with one empty bucket.

    Whoever asks is nobody in particular: otherwise the driver looks for a machine of Google's.
    """
    reason = "needs Google's driver: pip install 'relfrog[gs]'"
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # it asks Google, by gRPC
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("gcsfs", reason=reason)
    with gcs.serving() as storage:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{storage.port}")
        monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
        forget_drivers()
        storage.buckets["bucket"] = {}
        yield storage
    forget_drivers()


@pytest.fixture
def gs(google: gcs.Storage) -> str:
    """The address of an empty folder of that server."""
    return "gs://bucket/folder"


@pytest.fixture(params=["s3", "gs", "hdfs"])
def address(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replica:
    """A dataset, one file of it in several pieces, and a part, on the first node."""
    folder = tmp_path / "shop"
    (folder / "db").mkdir(parents=True)
    (folder / "manifest.yaml").write_text("name: shop\n")
    (folder / "db" / "orders.parquet").write_bytes(np.arange(3 << 19, dtype="u4").tobytes())
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "head"))

    def build(place: Path) -> None:
        np.save(place / "pointers.npy", np.arange(1000))

    open_store().use("graph", {"of": "shop"}, build, lambda place: None, "shop")
    return replicate({"dataset": folder}, open_store().used)


def contents(folder: Path) -> dict[str, bytes]:
    check_inside(folder)
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def files_at(url: str) -> dict[str, bytes]:
    """All files at an address."""
    system, root = fsspec.core.url_to_fs(url)
    system.invalidate_cache()
    return {name.removeprefix(root + "/"): system.cat_file(name) for name in system.find(root)}


def test_another_node_gets_what_the_first_has_put_there(
    address: str, head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = share(head, address)
    at = files_at(address)
    assert sorted(at) == sorted(
        f"{one.name}/{path}" for one in (*sent.folders.values(), *sent.parts) for path in one.files
    )
    original = contents(tmp_path / "shop")
    (tmp_path / "shop").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "other"))
    found = obtain(sent)["dataset"]
    assert found.is_relative_to(tmp_path / "other")
    assert contents(found) == original
    [part] = sent.parts
    assert open_store().damaged(part.label) == []
    assert open_store().files(part.label) == part.files


def test_what_is_there_is_not_sent_again_but_what_was_broken_off_is(
    address: str, head: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, sent = Address.put, []

    def counted(self: Address, source: Path, path: str) -> None:
        if len(sent) == broken:
            raise KeyboardInterrupt
        sent.append(path)
        put(self, source, path)

    monkeypatch.setattr(Address, "put", counted)
    broken = 1
    with pytest.raises(KeyboardInterrupt):
        share(head, address)
    broken = -1
    share(head, address)
    assert sorted(sent) == ["db/orders.parquet", "manifest.yaml", "pointers.npy"]
    share(head, address)
    assert len(sent) == 3


@pytest.mark.parametrize("when", ["while it is sent", "before it is renamed"])
def test_an_upload_that_breaks_off_leaves_nothing(
    address: str, head: Replica, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    system, _ = fsspec.core.url_to_fs(address)
    name = "put_file" if when == "while it is sent" else "mv"

    def broken(*given: Any, **options: Any) -> None:
        raise ConnectionResetError("it went away")

    with monkeypatch.context() as patch:
        patch.setattr(system, name, broken)
        if name == "mv" and address.startswith(("s3", "gs")):
            share(head, address)  # objects are never renamed
        else:
            with pytest.raises(StoreError, match=r"cannot be written: it went away$"):
                share(head, address)
            assert files_at(address) == {}
    share(head, address)
    assert len(files_at(address)) == 3


def test_two_nodes_put_and_take_the_same_at_once(
    address: str, head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[BaseException] = []

    def both() -> None:
        try:
            share(head, address)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=both) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(files_at(address)) == 3, "nothing is left aside"
    sent = share(head, address)
    for node in ("second", "third"):
        monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / node))
        assert contents(obtain(sent)["dataset"]) == contents(tmp_path / "shop")


@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_object_is_refused_with_the_remedy(
    address: str, head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    sent = share(head, address)
    source = sent.folders["dataset"].source
    system, root = fsspec.core.url_to_fs(source)
    target = f"{root}/manifest.yaml"
    system.rm_file(target)
    if how != "gone":
        system.pipe_file(target, b"name: shoq\n" if how == "flipped" else b"name")
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "other"))
    words = r"cannot be found from this node\. Run the command again" if how == "gone" else (
        "was damaged on its way or changed since.* or others than were sent.* after deleting"
    )  # fmt: skip
    with pytest.raises(StoreError, match=words) as raised:
        obtain(sent)
    assert str(raised.value).startswith(f"{source}/manifest.yaml ")
    assert not list((tmp_path / "other").rglob("manifest.yaml"))
    if how == "flipped":
        system.rm(root, recursive=True)  # as the message says
    assert contents(obtain(share(head, address))["dataset"]) == contents(tmp_path / "shop")


class TestS3:
    """What users set, and what goes wrong."""

    def test_a_bucket_that_is_not_there_is_said_and_not_made(self, s3: str, head: Replica) -> None:
        words = r"^s3://mistyped/folder/\w+/\S+ cannot be written: .*bucket does not exist$"
        with pytest.raises(StoreError, match=words):
            share(head, "s3://mistyped/folder")
        assert fsspec.filesystem("s3").ls("") == ["bucket"]

    def test_wrong_credentials_are_said_without_them(
        self, s3: str, head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import moto.settings
        from moto.core.responses import ActionAuthenticatorMixin

        sent = share(head, s3)
        with monkeypatch.context() as strict:
            strict.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
            strict.setattr(ActionAuthenticatorMixin, "request_count", 0)
            strict.setenv("RELFROG_CACHE", str(tmp_path / "other"))
            for work in (lambda: share(head, s3 + "-other"), lambda: obtain(sent)):
                forget_drivers()
                with pytest.raises(StoreError) as raised:
                    work()
                said = str(raised.value)
                assert re.match(r"s3://bucket/folder\S+ cannot be (listed|copied): ", said)
                assert "does not exist in our records" in said or said.endswith("Forbidden")
                assert SECRET not in said
                assert "\n" not in said

    def test_no_credentials_are_said(
        self, s3: str, head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        forget_drivers()
        with pytest.raises(StoreError, match=r"cannot be listed: Unable to locate credentials$"):
            share(head, s3)

    @pytest.mark.parametrize("user", ["", f"user:{SECRET[:4]}@"], ids=["nobody", "with a password"])
    def test_an_endpoint_that_cannot_be_used_is_said_without_its_password(
        self, s3: str, head: Replica, monkeypatch: pytest.MonkeyPatch, user: str
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{user}127.0.0.1:9")
        forget_drivers()
        monkeypatch.setattr(fsspec.get_filesystem_class("s3"), "retries", 1)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        words = (
            "credentials encoded in URL" if user else r"connect to the endpoint URL: .*:9/bucket"
        )
        with pytest.raises(StoreError, match=f"cannot be listed: .*{words}") as raised:
            share(head, s3)
        assert SECRET[:4] not in str(raised.value)

    def test_settings_are_read_as_fsspec_does(
        self, s3: str, s3_server: str, head: Replica, tmp_path: Path
    ) -> None:
        """Without Amazon's variables: from fsspec's own, and from files in its folder."""
        (tmp_path / "fsspec").mkdir()
        about = json.dumps({"s3": {"endpoint_url": s3_server, "key": KEY}})
        (tmp_path / "fsspec" / "conf.json").write_text(about)
        share(head, s3)
        script = "import sys; from relfrog.cluster.addresses import Address; print(len(Address(sys.argv[1]).sizes()))"
        plain = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        plain |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path),
                  "FSSPEC_CONFIG_DIR": str(tmp_path / "fsspec"), "FSSPEC_S3_SECRET": SECRET}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", script, s3], env=plain, capture_output=True, text=True
        )
        assert done.stdout == "3\n", done.stderr


class TestGoogle:
    """What users set, and what goes wrong."""

    def test_a_bucket_that_is_not_there_is_said_and_not_made(
        self, google: gcs.Storage, head: Replica
    ) -> None:
        words = (
            r"^gs://mistyped/folder/\w+/\S+ cannot be written: there is no such bucket or folder "
        )
        with pytest.raises(StoreError, match=words):
            share(head, "gs://mistyped/folder")
        assert list(google.buckets) == ["bucket"]

    def test_who_has_no_leave_is_told_so(
        self, google: gcs.Storage, gs: str, head: Replica, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        sent = share(head, gs)
        google.refused = "nobody@example.com does not have storage.objects.list access"
        monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "other"))
        for work, what in ((lambda: share(head, gs), "listed"), (lambda: obtain(sent), "copied")):
            words = rf"^gs://bucket/folder\S* cannot be {what}: Forbidden: .* nobody@example.com"
            with pytest.raises(StoreError, match=words) as raised:
                work()
            assert "\n" not in str(raised.value)

    def test_a_server_that_does_not_answer_is_said_once(
        self, gs: str, head: Replica, tmp_path: Path
    ) -> None:
        """In the error; the driver would log its traceback, too."""
        script = (
            "import asyncio, sys, fsspec; fsspec.config.conf['gs'] = {'token': 'anon'}\n"
            "async def at_once(seconds): pass\n"
            "asyncio.sleep = at_once\n"  # between one try and the next
            "from relfrog.cluster.addresses import Address\n"
            "try: Address(sys.argv[1]).sizes()\n"
            "except Exception as error: print(error)"
        )
        given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
                 "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script, gs], env=given, capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.stdout.startswith("gs://bucket/folder cannot be listed: "), done.stderr
        assert "9" in done.stdout
        assert "Traceback" not in done.stderr


def test_a_missing_driver_is_named_with_the_command_to_install_it(
    head: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, package in (
        ("s3://b/f", "relfrog[s3]"), ("gs://b/f", "relfrog[gs]"), ("abfs://b/f", "adlfs"),
    ):  # fmt: skip
        for module in ("s3fs", "gcsfs", "adlfs"):
            monkeypatch.setitem(sys.modules, module, None)
        loaded = sys.modules["fsspec.registry"]._registry
        monkeypatch.delitem(loaded, url.partition(":")[0], raising=False)
        with pytest.raises(UsageError) as raised:
            share(head, url)
        assert str(raised.value).endswith(f"on every node: pip install '{package}'")


def test_a_password_is_not_shown_by_an_error_that_is_cut(
    hdfs: str, head: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **options: Any) -> None:
        raise OSError(f"{'x' * (addresses.QUOTED - 20)} http://user:{SECRET}@host/ is gone")

    system, _ = fsspec.core.url_to_fs(hdfs)
    monkeypatch.setattr(system, "put_file", broken)
    with pytest.raises(StoreError, match="xx http://user:") as raised:
        share(head, hdfs)
    assert SECRET[:3] not in str(raised.value).rpartition("xx")[2]


def test_hadoop_without_java_is_said(head: Replica) -> None:
    with pytest.raises(UsageError, match=r"^hdfs://nowhere:1/f cannot be opened: .*webhdfs://"):
        share(head, "hdfs://nowhere:1/f")


def test_a_path_is_the_same_for_whoever_stands_elsewhere(
    head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv(SHARE, "bucket")
    sent = replicate({"dataset": tmp_path / "shop"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "other"))
    assert contents(obtain(sent)["dataset"]) == contents(tmp_path / "shop")


def test_a_full_disk_of_the_node_is_not_taken_for_an_error_of_the_server(
    hdfs: str, head: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = share(head, hdfs)
    monkeypatch.setenv("RELFROG_CACHE", str(tmp_path / "other"))

    def full(self: Address, path: str, target: Path) -> None:
        with self._said("be copied", path):
            raise OSError(addresses.errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Address, "get", full)
    with pytest.raises(StoreError, match=r"the disk of the cache folder .* is full"):
        obtain(sent)
