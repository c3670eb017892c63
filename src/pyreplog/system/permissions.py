"""Permissions: which users may write to a log's folders, and the modes of new files and folders.

Nothing of this is stored: each opening names it again. Rule: never write in a folder in which an
untrusted user could exchange files. ``owner`` trusts this user alone, ``group`` the members of the
folder's group, ``any`` all users.
"""

from __future__ import annotations

import os
import stat
from typing import Final, NamedTuple

from pyreplog.config import Permissions, check_permissions
from pyreplog.errors import Wording, for_python

__all__ = ["Modes", "modes_of"]


class Modes(NamedTuple):
    """The meaning of one value of ``permissions`` for new and for existing folders and files."""

    permissions: Permissions
    file: int
    directory: int
    exact: bool
    """Whether new files and folders get exactly these modes; otherwise the umask removes its bits.
    """

    def settle_file(self, fd: int) -> None:
        """Set the mode of a file that was just made."""
        if self.exact:
            os.fchmod(fd, self.file)

    def settle_directory(self, path: str) -> None:
        """Set the mode of a folder that was just made.

        ``group`` keeps the setgid bit that Linux copies from the parent.
        """
        if not self.exact:
            return
        kept = os.stat(path).st_mode & stat.S_ISGID if self.permissions == "group" else 0
        os.chmod(path, self.directory | kept)

    def refusal(self, status: os.stat_result, *, write: bool, say: Wording = for_python) -> str:
        """Return why the folder with ``status`` cannot be trusted, and what to do; empty if it can.

        ``write``: the caller will write to it. ``say``: the wording of the advice.
        """
        if self.permissions == "any":
            return ""
        owner, group, mode = status.st_uid, status.st_gid, status.st_mode
        own = owner == os.geteuid()
        if self.permissions == "group" and mode & stat.S_IWGRP:
            if group not in (os.getegid(), *os.getgroups()):
                why = f"the folder is writable by group {group}, and this process is not a member of it"
                return why + _ways(f"chgrp {os.getegid()}", write, "any", say)
            own = True  # the group's members are trusted, and the owner could be one of them
        if not own:
            why = f"the folder belongs to user {owner}, not to this one (user {os.geteuid()}): it cannot be trusted"
            if self.permissions == "group":
                return f"{why}, unless its group may write to it{_ways('chmod -R g+rwX', write, 'any', say)}"
            return f"{why}{_ways(f'chown -R {os.geteuid()}', write, 'group' if mode & stat.S_IWGRP else 'any', say)}"
        if mode & stat.S_IWOTH:
            bit = "go-w" if self.permissions == "owner" else "o-w"
            return f"the folder is writable by everybody{_ways(f'chmod {bit}', write, 'any', say)}"
        if mode & stat.S_IWGRP and self.permissions == "owner":
            return f"the folder is writable by its group {group}{_ways('chmod go-w', write, 'group', say)}"
        return ""


def _ways(command: str, write: bool, permissions: str, say: Wording) -> str:
    """Return the advice, as the end of a sentence."""
    option = say(f"open it with permissions={permissions!r}", f"write to it with --permissions {permissions}")
    return f": run `{command}` on it{f', or {option} if that is meant' if write else ''}"


_MODES: Final = {
    "owner": Modes("owner", 0o600, 0o700, True),
    "group": Modes("group", 0o660, 0o770, True),
    "any": Modes("any", 0o666, 0o777, False),
}


def modes_of(permissions: object) -> Modes:
    """Return the modes of ``permissions``. Raises :class:`ConfigError` for any other value."""
    return _MODES[check_permissions(permissions)]
