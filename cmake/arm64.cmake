# SPDX-License-Identifier: MIT
#
# Cross-compiling for 64-bit ARM with Debian's compiler; programs run under qemu-user where it is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(quern_triple aarch64-linux-gnu)
set(quern_emulator qemu-aarch64)
include("${CMAKE_CURRENT_LIST_DIR}/cross.cmake")
