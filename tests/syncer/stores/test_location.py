"""A storage path is parsed once, and its secrets are kept apart."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import fsspec
import pytest
import s3fs
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem, SubTreeFileSystem

from holdfast.syncer.errors import InvalidLocation, StorageError
from holdfast.syncer.stores.generic import ArrowStore
from holdfast.syncer.stores.local import LocalStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3.store import S3Store

SECRET = "wJalr/XUtn+FEMI=K7"


def resolve(path: Any, filesystem: object = None, **environ: str) -> Location:
    return Location.resolve(path, filesystem, environ)


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("results/mine").local_path == str(tmp_path / "results" / "mine")
    assert resolve(tmp_path / "x" / ".." / "y").public == str(tmp_path / "y")


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve("~/results").local_path == "/home/someone/results"
    assert resolve(None).local_path == "/home/someone/ray_results"
    with pytest.raises(InvalidLocation, match="no such user"):
        resolve("~nobody-of-this-name/results")


def test_the_environment_names_the_place_when_the_user_does_not() -> None:
    both = {"RAY_STORAGE": "s3://bucket/runs", "RAY_AIR_LOCAL_CACHE_DIR": "/cache"}
    assert resolve(None, **both).public == "s3://bucket/runs"
    assert resolve("/given", **both).public == "/given"
    assert resolve(None, RAY_AIR_LOCAL_CACHE_DIR="/cache").public == "/cache"


def test_a_file_uri_is_a_local_path() -> None:
    assert resolve("file:///data/my%20runs").local_path == "/data/my runs"
    assert resolve("file://localhost/data").local_path == "/data"
    with pytest.raises(InvalidLocation, match="three slashes"):
        resolve("file://data/runs")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/pre/fix?access_key=AKIA123&secret_key=" + SECRET,
        "s3://AKIA123:wJalr%2FXUtn%2BFEMI=K7@bucket/pre/fix/",
        "s3://bucket/pre/fix?access_key=AKIA123&secret_key=wJalr%2FXUtn%2BFEMI%3DK7",
    ],
)
def test_credentials_of_an_s3_uri_are_held_apart(uri: str) -> None:
    location = resolve(uri)
    assert location.base.options == {"access_key": "AKIA123", "secret_key": SECRET}
    assert location.public == "s3://bucket/pre/fix"
    assert location.path == "bucket/pre/fix"
    for told in [repr(location), str(location), repr(location.base), f"{location.child('x')!r}"]:
        assert "AKIA123" not in told
        assert "XUtn" not in told


def test_the_options_of_an_s3_uri_stay_in_its_public_form() -> None:
    uri = (
        "s3://bucket/x?endpoint_override=http://localhost:9000&session_token=t0ken"
        "&access_key=AKIA123&secret_key=hunter22&region=eu-west-1&allow_bucket_creation=true"
    )
    location = resolve(uri)
    assert location.public == (
        "s3://bucket/x?endpoint_override=http://localhost:9000&region=eu-west-1"
        "&allow_bucket_creation=true"
    )
    again = resolve(location.public)
    assert again.public == location.public
    assert again.path == location.path
    assert location.child("trial/a b").public.startswith("s3://bucket/x/trial/a%20b?endpoint")


def test_what_is_written_to_disk_has_no_secret_in_it() -> None:
    location = resolve(f"s3://bucket/x?access_key=AKIA123&secret_key={SECRET}").child("y")
    travelling, resting = pickle.dumps(location), pickle.dumps(location.without_credentials())
    assert SECRET.encode() in travelling
    assert SECRET.encode() not in resting
    assert b"AKIA123" not in resting
    assert pickle.loads(resting).public == location.public


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("s3://", "it has no bucket"),
        ("s3:///prefix", "it has no bucket"),
        ("s3://bucket/x?acess_key=AKIA123", "'acess_key' is not an option"),
        ("s3://bucket/x?access_key=AKIA123", "one is missing"),
        ("s3://bucket/x?scheme=ftp", "http or https"),
        ("s3://bucket/x?anonymous=perhaps", "true or false"),
        ("s3://bucket/x?request_timeout=soon", "request_timeout must be a number of seconds"),
        ("s3://bucket/x?connect_timeout=0", "connect_timeout must be a number of seconds"),
        ("s4://bucket/x", "neither pyarrow nor fsspec knows the protocol 's4'"),
        ("", "empty"),
        ("  ", "empty"),
        (b"/bytes", "not bytes"),
        ("/with/\0nul", "NUL"),
    ],
)
def test_what_cannot_be_understood_is_reported(uri: Any, told: str) -> None:
    with pytest.raises(InvalidLocation, match=told):
        resolve(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA123:hunter2/rest@bucket/x",
        "s3://AKIA123:hunter2?rest@bucket/x",
        "s3://bucket/x?access_key=AKIA123&secret_key=abc&hunter2",
        "s3://bucket/x?access_key=AKIA123&secret_key=abc&hunter2=1",
        "s3://bucket/x?secret_key=hunter2",
        "s4://AKIA123:hunter2@bucket/x",
    ],
)
def test_the_error_for_a_bad_uri_tells_no_secret(uri: str) -> None:
    with pytest.raises(InvalidLocation) as caught:
        resolve(uri)
    assert "hunter2" not in str(caught.value)


def test_each_kind_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(resolve(tmp_path).open_store(), LocalStore)
    assert isinstance(resolve("s3://bucket/x").open_store(), S3Store)
    assert isinstance(resolve("memory://x").open_store(), ArrowStore)


def test_pyarrow_resolves_its_own_protocols() -> None:
    filesystem, path = resolve("gs://anonymous@bucket/x").child("y").arrow()
    assert filesystem.type_name == "gcs"
    assert path == "bucket/x/y"


def test_a_password_in_another_uri_is_held_apart() -> None:
    assert resolve("abfs://:hunter2@account.dfs.core.windows.net/x").public == (
        "abfs://account.dfs.core.windows.net/x"
    )
    assert resolve("abfs://container@account.dfs.core.windows.net/x").public == (
        "abfs://container@account.dfs.core.windows.net/x"
    )
    assert resolve("sftp://me:hunter2@host/x?password=hunter2&port=1").public == (
        "sftp://me@host/x?port=1"
    )


def test_a_driver_that_cannot_start_is_a_storage_error_without_secrets() -> None:
    with pytest.raises(StorageError, match="open sftp://me@127") as caught:
        resolve("sftp://me:hunter2@127.0.0.1:1/x").arrow()
    assert "hunter2" not in str(caught.value)


def test_one_filesystem_is_made_and_shared_with_all_below() -> None:
    location = resolve("s3://bucket/x?region=us-east-1&anonymous=true")
    filesystem, path = location.child("a").arrow()
    assert location.child("b/c").arrow() == (filesystem, "bucket/x/b/c")
    assert location.arrow()[0] is filesystem
    assert path == "bucket/x/a"


def test_timeouts_are_part_of_the_place_and_reach_pyarrow_too() -> None:
    uri = "s3://bucket/x?region=us-east-1&anonymous=true&request_timeout=2.5&connect_timeout=1"
    location = resolve(uri)
    assert location.public == uri
    filesystem, _ = location.arrow()
    assert filesystem.type_name == "s3"


def test_a_child_stays_below() -> None:
    location = resolve("/data/runs")
    assert location.child("a/b").local_path == "/data/runs/a/b"
    assert location.child("a").child("b") == location.child("a/b")
    for name in ["../up", "/etc", "", "a/../../b"]:
        with pytest.raises(ValueError, match="must be a relative path"):
            location.child(name)


def test_a_given_filesystem_takes_a_path_without_protocol() -> None:
    import pyarrow.fs

    filesystem = pyarrow.fs.SubTreeFileSystem("/", pyarrow.fs.LocalFileSystem())
    location = resolve("bucket/prefix/", filesystem)
    assert location.public == "bucket/prefix"
    assert location.local_path is None
    assert location.arrow() == (filesystem, "bucket/prefix")
    with pytest.raises(InvalidLocation, match="storage_path='bucket/prefix'"):
        resolve("s3://bucket/prefix", filesystem)
    with pytest.raises(InvalidLocation, match="needs a storage_path"):
        resolve(None, filesystem)
    with pytest.raises(InvalidLocation, match="a dict is neither"):
        resolve("x", {})


def test_an_fsspec_filesystem_may_be_given_directly() -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    location = resolve("folder", MemoryFileSystem())
    filesystem, path = location.arrow()
    assert "fsspec" in filesystem.type_name
    assert path == "folder"


def test_this_machines_filesystem_is_a_local_place_however_it_is_given(tmp_path: Path) -> None:
    import pyarrow.fs
    from fsspec.implementations.local import LocalFileSystem

    for filesystem in [pyarrow.fs.LocalFileSystem(), LocalFileSystem()]:
        assert resolve(tmp_path, filesystem).local_path == str(tmp_path)


def test_a_users_own_kind_of_local_filesystem_is_not_bypassed(tmp_path: Path) -> None:
    from fsspec.implementations.local import LocalFileSystem

    class Audited(LocalFileSystem):  # type: ignore[misc]
        pass

    assert resolve(tmp_path, Audited()).local_path is None


def test_a_location_travels_to_a_process_of_holdfast() -> None:
    for location in [resolve("/data"), resolve("s3://b/x?region=r"), resolve("mock://x/y")]:
        location.arrow()
        copy = cloudpickle.loads(cloudpickle.dumps(location.child("z")))
        assert copy == location.child("z")
        assert hash(copy) == hash(location.child("z"))
        assert location.is_picklable


def test_what_lies_in_the_memory_of_a_process_does_not_travel() -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    assert not resolve("memory://x/y").is_picklable
    assert not resolve("x/y", MemoryFileSystem()).is_picklable


def test_a_filesystem_that_cannot_travel_is_known() -> None:
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    class Bound(DirFileSystem):  # type: ignore[misc]
        cachable = False

        def __init__(self) -> None:
            super().__init__("/x", LocalFileSystem())
            self.lock = threading.Lock()

        def __reduce__(self) -> Any:
            return Bound, (self.lock,)

    assert resolve("x", DirFileSystem("/x", LocalFileSystem())).is_picklable
    assert not resolve("x", Bound()).is_picklable


def test_memory_does_not_travel_below_a_prefix_either() -> None:
    import pyarrow.fs
    from fsspec.implementations.memory import MemoryFileSystem

    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(MemoryFileSystem()))
    assert not resolve("y", pyarrow.fs.SubTreeFileSystem("/x", wrapped)).is_picklable


def test_this_machines_disks_are_written_to_as_such_whatever_wraps_them(tmp_path: Path) -> None:
    import pyarrow.fs
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    from holdfast.syncer.stores.local import LocalStore

    below = DirFileSystem(str(tmp_path), LocalFileSystem())
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(below))
    ways = [
        resolve("x", pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())),
        resolve("x", below),
        resolve("y", pyarrow.fs.SubTreeFileSystem("x/..", wrapped)),
    ]
    stores = [way.child("z").open_store() for way in ways]
    assert stores == [LocalStore(tmp_path / name / "z") for name in ("x", "x", "y")]


def test_a_given_filesystem_does_not_rest_on_disk() -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    resting = resolve("x", MemoryFileSystem()).without_credentials()
    assert resting.is_picklable
    with pytest.raises(InvalidLocation, match="storage_filesystem must be given"):
        resting.arrow()


def test_resolving_contacts_nothing_and_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    script = (
        "import sys; from holdfast.syncer.stores.location import Location\n"
        "Location.resolve('s3://bucket/x?endpoint_override=http://127.0.0.1:1', None, {})\n"
        "Location.resolve('/tmp/x', None, {}).open_store()\n"
        "print([m for m in ('pyarrow', 'fsspec', 'aiobotocore', 'anyio') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert told.stdout.strip() == "[]"


def test_two_ways_to_one_place_are_equal() -> None:
    whole = Location.resolve("/a/b", None, {})
    part = Location.resolve("/a", None, {}).child("b")
    assert whole == part
    assert hash(whole) == hash(part)
    assert whole != part.child("c")
    assert whole != Location.resolve("s3://a/b", None, {})


def test_without_credentials_in_front_of_a_bucket_requests_are_unsigned() -> None:
    location = resolve("s3://anonymous@bucket/x?region=us-east-1")
    assert location.public == "s3://bucket/x?region=us-east-1&anonymous=true"
    assert location.child("y").path == "bucket/x/y"
    with pytest.raises(InvalidLocation, match="anonymous access uses no credentials"):
        resolve("s3://anonymous@bucket/x?access_key=a&secret_key=b")


# -- as a URI -----------------------------------------------------------------------------------

ODD = "a b/50%41 #1?&+ü'é"


@pytest.mark.parametrize("place", ["/data", "file:///data", "local:///data"])
def test_the_uri_of_a_local_place_is_its_path(place: str) -> None:
    uri = resolve(place).child(ODD).uri
    assert uri == f"/data/{ODD}"
    assert resolve(uri).local_path == uri
    assert FileSystem.from_uri(uri)[1] == uri
    assert fsspec.core.url_to_fs(uri)[1] == uri


S3 = "s3://bucket/x?endpoint_override=http://localhost:9000&region=us-east-1"


@pytest.mark.parametrize("base", [S3, "gs://anonymous@bucket/x"])
def test_a_uri_names_the_same_place_again_whatever_characters_it_has(base: str) -> None:
    place = resolve(base).child(ODD)
    assert place.uri is not None
    assert place.uri.isascii()
    again = resolve(place.uri)
    assert again.path == place.path == f"bucket/x/{ODD}"
    assert again.uri == place.uri
    assert FileSystem.from_uri(place.uri)[1] == place.path


def test_the_folder_of_a_bucket_is_below_it() -> None:
    assert resolve("gs://bucket").child("run").uri == "gs://bucket/run"
    assert resolve("gs://bucket/").child("run").uri == "gs://bucket/run"
    assert resolve("s3://bucket").child("run").uri == "s3://bucket/run"


def test_fsspec_gets_its_uris_as_they_are() -> None:
    place = resolve("memory://runs").child("a b/50%41")
    assert place.uri == "memory://runs/a b/50%41"
    assert resolve(place.uri).path == place.path


def test_a_uri_has_the_endpoint_and_no_credentials() -> None:
    uri = f"s3://AKIA123:{SECRET.replace('/', '%2F').replace('+', '%2B')}@bucket/x"
    place = resolve(f"{uri}?endpoint_override=http://localhost:9000&session_token=t0ken")
    assert place.uri == "s3://bucket/x?endpoint_override=http://localhost:9000"


def test_a_users_filesystem_has_a_uri_if_one_says_as_much(tmp_path: Path) -> None:
    subtree = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    assert resolve("a b", subtree).uri == str(tmp_path / "a b")
    assert resolve(str(tmp_path), LocalFileSystem()).uri == str(tmp_path)
    ours = s3fs.S3FileSystem(
        key="AKIA123",
        secret=SECRET,
        endpoint_url="http://localhost:9000",
        skip_instance_cache=True,
    )
    assert resolve("bucket/a b", ours).uri == (
        "s3://bucket/a%20b?endpoint_override=http://localhost:9000"
    )
    more = s3fs.S3FileSystem(requester_pays=True, skip_instance_cache=True)
    assert resolve("bucket/x", more).uri is None
    assert resolve("arn:aws:s3:us-west-2:1:accesspoint/mine", ours).uri is None
    assert resolve("bucket/x", S3FileSystem(anonymous=True, region="us-east-1")).uri is None
    assert resolve("x", fsspec.filesystem("memory")).uri is None
    assert resolve("x", fsspec.filesystem("memory")).without_credentials().uri is None
