# SPDX-License-Identifier: MIT
#
# Cross-compiling for 32-bit ARM (ARMv7-A, hard float) with Debian's compiler; programs run under qemu-user where it
# is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(quern_triple arm-linux-gnueabihf)
set(quern_emulator qemu-arm)
# Offsets are computed in 64 bits on every machine, and what is addressed fits 32 here.  Nothing about GCC 7's ABI.
set(CMAKE_CXX_FLAGS_INIT "-Wno-narrowing -Wno-psabi")
include("${CMAKE_CURRENT_LIST_DIR}/cross.cmake")
