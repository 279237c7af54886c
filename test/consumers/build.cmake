# SPDX-License-Identifier: MIT
#
# cmake -DSOURCE=... -DBUILD=... -DOPTIONS=... [-DPREFIX=...] [-DRUN=...] -P build.cmake
# Configures a project, builds it, installs it to PREFIX or runs RUN.
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BUILD}" ${OPTIONS} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${BUILD}" COMMAND_ERROR_IS_FATAL ANY)
if(PREFIX)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}" COMMAND_ERROR_IS_FATAL ANY)
endif()
if(RUN)
  execute_process(COMMAND "${BUILD}/${RUN}" COMMAND_ERROR_IS_FATAL ANY)
endif()
