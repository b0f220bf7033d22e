"""Files are replaced whole, or left as they were with an error that names them."""

import errno

import pytest

from seqgen.files import replacing


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
