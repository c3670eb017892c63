"""The exceptions: one tree, documented, and in step with the kernels."""

from __future__ import annotations

import copy
import errno
import inspect
import pickle
import re

import pytest

from pyreplog import errors
from tests.house.sources import CORE_SOURCES, ROOT

CLASSES = sorted(
    (kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.PyreplogError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_exported_and_documented(kind: type[errors.PyreplogError]) -> None:
    """Each class has a docstring of its own, stands in ``__all__`` and on the reference page."""
    assert kind.__doc__ is not None
    assert all(kind.__doc__ != base.__doc__ for base in kind.__bases__)
    assert kind.__name__ in errors.__all__
    assert f"`{kind.__name__}`" in (ROOT / "docs" / "reference" / "errors.md").read_text()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_can_be_sent_to_another_process(kind: type[errors.PyreplogError]) -> None:
    """Else a pool of processes breaks, or waits for ever, where one of them raised it. Text, attributes and errno
    arrive."""
    numbers = {"asked": 1, "start": 2, "end": 3, "position": 4, "offset": 6, "waited_ms": 7.0, "waited_s": 8.0}
    known = {"error": errors.StorageError(5, "Input/output error", "/x"), **numbers}
    if inspect.isfunction(kind.__init__):
        made = kind(**{name: known.get(name, name) for name in inspect.signature(kind).parameters})
    else:
        made = kind(5, "text", "/x")
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert type(other) is kind
        assert (str(other), other.args) == (str(made), made.args)
        assert vars(other) == vars(made)
        assert getattr(other, "errno", None) == getattr(made, "errno", None)
        assert getattr(other, "filename", None) == getattr(made, "filename", None)


def test_the_errno_says_which_kind_of_storage_error_it_is() -> None:
    """As Python's OSError does; each stays what it is in another process. A kind that is made by its name keeps
    it."""
    for code, builtin in (
        (errno.ENOENT, FileNotFoundError),
        (errno.EACCES, PermissionError),
        (errno.EPERM, PermissionError),
        (errno.EEXIST, FileExistsError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EISDIR, IsADirectoryError),
    ):
        direct = errors.StorageError(code, "text", "/x")
        for error in (
            direct,
            errors.StorageError.from_os_error(OSError(code, "text"), "reading", "/x"),
            pickle.loads(pickle.dumps(direct)),
        ):
            assert isinstance(error, builtin)
            assert isinstance(error, errors.StorageError)
            assert (error.errno, error.filename) == (code, "/x")
            assert "text" in str(error)
    for code in (errno.EIO, errno.ENOSPC):
        assert type(errors.StorageError(code, "text", "/x")) is errors.StorageError
    assert type(errors.LockedError("/x", "pid 1")) is errors.LockedError
    assert type(errors.UnsyncedError("tried", OSError(errno.ENOENT, "text"))) is errors.UnsyncedError


def test_codes_are_kafkas_and_unique() -> None:
    """Every answer of a node has one number, and the number finds its class again."""
    kinds = [kind for kind in CLASSES if issubclass(kind, errors.ClusterError) and kind is not errors.ClusterError]
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert type(errors.cluster_error(kind.code, "x")) is kind
        assert "x" in str(errors.cluster_error(kind.code, "x"))
    plain = errors.cluster_error(9999, "x")
    assert type(plain) is errors.ClusterError
    assert (plain.code, str(plain)) == (9999, "the cluster answered: Kafka's error 9999: x")


def test_kernel_statuses_have_words() -> None:
    """Every negative status of ``status.h`` raises a CorruptError that says something, and no word is left over."""
    header = (CORE_SOURCES / "kernels" / "status.h").read_text()
    statuses = sorted(int(number) for number in re.findall(r"=\s*(-\d+)", header))
    assert statuses
    for status in statuses:
        with pytest.raises(errors.CorruptError) as caught:
            errors.raise_for_status(status, 7)
        assert caught.value.position == 7
        assert caught.value.reason
    with pytest.raises(errors.InternalError):
        errors.raise_for_status(statuses[0] - 1, 0)


def test_foreign_input_is_cut_and_escaped() -> None:
    """An error text never carries more than 64 bytes of foreign input, nor a control character."""
    text = errors.excerpt(b"\x1b[31m" + b"a" * 1000)
    assert len(text) < 120
    assert "\x1b" not in text
