# SPDX-License-Identifier: MIT
#
# What the toolchain files share: Debian's crossbuild compilers and the libraries that come with them.
set(CMAKE_C_COMPILER ${quern_triple}-gcc)
set(CMAKE_CXX_COMPILER ${quern_triple}-g++)
# Libraries of the target alone; headers and CMake packages that are the same for every machine may be the host's.
set(CMAKE_FIND_ROOT_PATH /usr/${quern_triple})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
find_program(QUERN_EMULATOR NAMES ${quern_emulator}-static ${quern_emulator})
mark_as_advanced(QUERN_EMULATOR)
if(QUERN_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${QUERN_EMULATOR};-L;/usr/${quern_triple}")
endif()
