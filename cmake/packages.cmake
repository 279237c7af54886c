# SPDX-License-Identifier: MIT
#
# What the companion, tools, tests and benches need from the system.  The library itself needs nothing.

# find_package, and a sentence with the Debian package's name when it isn't there.
macro(quern_need package debian who)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${who} needs ${package}: apt-get install ${debian}, or scripts/setup for all of them")
  endif()
endmacro()

# Debian has GoogleTest for this machine, and its source for the others.
macro(quern_need_googletest who)
  if(CMAKE_CROSSCOMPILING)
    set(quern_googletest /usr/src/googletest)
    if(NOT EXISTS ${quern_googletest}/CMakeLists.txt)
      message(FATAL_ERROR "${who} need ${quern_googletest}: apt-get install googletest, or scripts/setup for all of them")
    endif()
    set(BUILD_GMOCK OFF)
    set(INSTALL_GTEST OFF)
    add_subdirectory(${quern_googletest} "${PROJECT_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
  else()
    quern_need(GTest libgtest-dev "${who}")
  endif()
endmacro()

# A header that comes without a CMake package; its folder goes to `variable`.
function(quern_need_header variable header debian who)
  find_path(${variable} ${header} ${ARGN})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    message(FATAL_ERROR "${who} needs ${header}: apt-get install ${debian}, or scripts/setup for all of them")
  endif()
endfunction()

function(quern_find_pthreadpool)
  set(who "quern_host (off with -DQUERN_BUILD_HOST=OFF)")
  quern_need_header(QUERN_PTHREADPOOL_INCLUDE_DIR pthreadpool.h libpthreadpool-dev "${who}")
  find_library(QUERN_PTHREADPOOL_LIBRARY pthreadpool)
  mark_as_advanced(QUERN_PTHREADPOOL_LIBRARY)
  if(NOT QUERN_PTHREADPOOL_LIBRARY)
    message(FATAL_ERROR "${who} needs libpthreadpool.so: apt-get install libpthreadpool-dev")
  endif()
endfunction()
