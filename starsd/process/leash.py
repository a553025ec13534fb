"""``python leash.py PARENT COMMAND...``: become COMMAND, killed by the kernel when PARENT dies.

Run by path with ``-I -S``, so it imports nothing of ours and costs about 10 ms. The mark survives
exec but not fork: a service's own step loop ends by itself when its socket to the front closes.
Linux only; elsewhere a supervisor that is killed with SIGKILL leaves its children behind.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def main(arguments: list[str]) -> None:
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != int(parent):  # it died before the mark was set
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
