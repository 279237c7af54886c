# SPDX-License-Identifier: MIT
#
# QUERN_PREFIX: a copy of the sources in which every public name, the namespace, the macros, the include
# paths and the environment variables begin with another word.

string(TOUPPER "${QUERN_PREFIX}" QUERN_PREFIX_UPPER)

# Sets `result` to the folder that holds include/ and src/ with the wanted names.
function(quern_rename_sources result)
  if(QUERN_PREFIX STREQUAL "quern")
    set(${result} "${PROJECT_SOURCE_DIR}" PARENT_SCOPE)
    return()
  endif()
  set(root "${PROJECT_BINARY_DIR}/${QUERN_PREFIX}")
  file(GLOB_RECURSE files RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*"
    "${PROJECT_SOURCE_DIR}/src/*")
  set(copies "")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${file}")
    file(READ "${PROJECT_SOURCE_DIR}/${file}" text)
    # "quern/quern.h" first, then what precedes the rest of a name.  Any other "quern" is prose or data.
    string(REPLACE "quern/quern.h" "${QUERN_PREFIX}/${QUERN_PREFIX}.h" text "${text}")
    foreach(end IN ITEMS "_" "::" "/")
      string(REPLACE "quern${end}" "${QUERN_PREFIX}${end}" text "${text}")
    endforeach()
    string(REPLACE "namespace quern" "namespace ${QUERN_PREFIX}" text "${text}")
    string(REPLACE "QUERN_" "${QUERN_PREFIX_UPPER}_" text "${text}")
    string(REPLACE "quern/quern.h" "${QUERN_PREFIX}/${QUERN_PREFIX}.h" copy "${file}")
    string(REPLACE "include/quern/" "include/${QUERN_PREFIX}/" copy "${copy}")
    set(copy "${root}/${copy}")
    list(APPEND copies "${copy}")
    set(old "")
    if(EXISTS "${copy}")
      file(READ "${copy}" old)
    endif()
    if(NOT old STREQUAL text)
      file(WRITE "${copy}" "${text}")
    endif()
  endforeach()
  file(GLOB_RECURSE found "${root}/*")
  list(REMOVE_ITEM found ${copies})
  if(found)
    file(REMOVE ${found})
  endif()
  set(${result} "${root}" PARENT_SCOPE)
endfunction()
