"""Says for which systems the wheel is: the program in it runs there, whatever Python does."""

import platform
import sys
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):
    """Tags the wheel for any Python 3 on this kind of system."""

    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + _systems()


def _systems():
    if sys.platform == "linux":
        # The program is linked statically: it needs neither glibc nor musl.
        machine = platform.machine()
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
