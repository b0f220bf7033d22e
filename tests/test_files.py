"""Files are replaced whole, or left as they were with an error that names them."""

import errno

import pytest

from seqgen import files
from seqgen.files import named_when_written, remove_leftovers, replacing


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

    def named():
        assert remove_leftovers(tmp_path.iterdir()) == []
        return path

    with named_when_written(path, named) as file:
        assert remove_leftovers(tmp_path.iterdir()) == []
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


def test_where_files_cannot_be_locked_they_are_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "take_lock", lambda file, wait=False: False)
    with replacing(tmp_path / "some.file") as file:
        file.write(b"whole")
    assert (tmp_path / "some.file").read_bytes() == b"whole"
