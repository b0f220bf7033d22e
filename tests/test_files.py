"""Files are replaced whole, or left as they were with an error that names them."""

import errno
import os
import stat

import pytest

from seqgen import files
from seqgen.files import (
    HeldFile,
    delete_own,
    is_locked_elsewhere,
    move_folder,
    named_when_written,
    replacing,
)


def test_a_full_disk_is_told_of_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "some.file"
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="No space left") as caught, replacing(path) as file:
        file.write(b"after")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_told_of_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "missing" / "some.file"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        pass
    assert caught.value.filename == str(path)


def test_an_error_about_another_file_stays_about_it(tmp_path):
    source, path = tmp_path / "source", tmp_path / "some.file"
    with pytest.raises(FileNotFoundError) as caught, replacing(path) as file:
        file.write(source.read_bytes())
    assert caught.value.filename == str(source)


def test_a_file_is_no_leftover_until_it_has_its_name(tmp_path):
    """Also when it has been written and closed, and while its name is looked for."""
    path = tmp_path / "some.file"

    def deleted() -> list:
        return [p for p in tmp_path.iterdir() if delete_own(p, tmp_path, lambda file: True)]

    def named():
        assert deleted() == []
        return path

    with named_when_written(path, named) as file:
        assert deleted() == []
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_taken_for_a_leftover_at_once_is_made_again(tmp_path, monkeypatch):
    path, lock, taken = tmp_path / "some.file", files.take_lock, []

    def late(file, wait=False):
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        return lock(file, wait)

    monkeypatch.setattr(files, "take_lock", late)
    with replacing(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["stat", "unlink"])
def test_a_file_that_another_process_deletes_meanwhile_is_no_error(tmp_path, monkeypatch, call):
    path, original = tmp_path / "leftover", getattr(os, call)
    path.write_bytes(b"own")

    def late(*args, **more):
        path.unlink(missing_ok=True) if call == "stat" else original(*args, **more)
        return original(*args, **more)

    monkeypatch.setattr(os, call, late)
    assert not delete_own(path, tmp_path, lambda file: True)
    monkeypatch.undo()
    assert not path.exists()


def test_a_file_system_without_locks_is_no_other_process(tmp_path, monkeypatch):
    """As some network file systems are; what another process locks is not deleted either."""
    path = tmp_path / "lock"
    path.write_bytes(b"")
    for error, elsewhere in ((errno.ENOLCK, False), (errno.ENOSYS, False), (errno.EAGAIN, True)):

        def flock(file, how, error=error):
            raise OSError(error, os.strerror(error))

        monkeypatch.setattr(files.fcntl, "flock", flock)
        with path.open("rb") as file:
            assert is_locked_elsewhere(file) is elsewhere
        assert not delete_own(path, tmp_path, lambda file: True)
        assert path.exists()


def test_where_files_cannot_be_locked_they_are_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "take_lock", lambda file, wait=False: False)
    with replacing(tmp_path / "some.file") as file:
        file.write(b"whole")
    assert (tmp_path / "some.file").read_bytes() == b"whole"


def mode_of(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o664, 0o755])
def test_a_file_keeps_its_mode_when_it_is_replaced(tmp_path, mode, umask):
    """A new one has the mode that the umask leaves."""
    path, new = tmp_path / "some.file", tmp_path / "new.file"
    path.write_bytes(b"before")
    path.chmod(mode)
    usual = os.umask(umask)
    try:
        for each in (path, new):
            with replacing(each) as file:
                file.write(b"after")
                assert [mode_of(one) for one in tmp_path.glob(".*.tmp")] == [0o600]
        assert os.umask(umask) == umask
    finally:
        os.umask(usual)
    assert path.read_bytes() == b"after" and mode_of(path) == mode
    assert mode_of(new) == 0o666 & ~umask


def test_a_file_keeps_its_group_or_loses_the_groups_rights(tmp_path, monkeypatch):
    path, asked = tmp_path / "some.file", []
    path.write_bytes(b"before")
    path.chmod(0o664)
    owner = path.stat()

    def refuse(temporary, user, group):
        asked.append((user, group))
        raise PermissionError

    class Other:
        st_mode, st_uid, st_gid = owner.st_mode, owner.st_uid + 1, owner.st_gid + 1

    monkeypatch.setattr(type(path), "lstat", lambda self: Other)
    monkeypatch.setattr(os, "chown", refuse)
    with replacing(path) as file:
        file.write(b"after")
    monkeypatch.undo()
    assert asked == [(-1, owner.st_gid + 1), (owner.st_uid + 1, -1)]
    assert path.read_bytes() == b"after" and mode_of(path) == 0o604


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="needs the superuser")
def test_a_file_of_somebody_else_stays_theirs(tmp_path):
    path = tmp_path / "some.file"
    path.write_bytes(b"before")
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    with replacing(path) as file:
        file.write(b"after")
    about = path.stat()
    assert (about.st_uid, about.st_gid, mode_of(path)) == (12345, 23456, 0o640)


def test_a_folder_moves_with_files_that_are_held_open(tmp_path, monkeypatch):
    """As on Windows, where they are closed and opened again, and elsewhere."""
    for moves in (True, False):
        monkeypatch.setattr(files, "OPEN_FILES_MOVE", moves)
        folder, place = tmp_path / f"a{moves}", tmp_path / f"b{moves}"
        folder.mkdir()
        with HeldFile(folder / "log", "ab") as log:
            log.write(b"one\n")
            assert move_folder(folder, place) == place
            log.write(b"two\n")
            with pytest.raises(OSError, match=r"."):
                move_folder(place, tmp_path / "none" / "there")
            log.write(b"three\n")
        assert (place / "log").read_bytes() == b"one\ntwo\nthree\n"
        assert log.file.closed
    assert not HeldFile.held
