# SPDX-License-Identifier: MIT
#
# Finds kernels and algorithms, and writes their tables into the build folder.
#
# A kernel file is src/<backend>/<what>_<isa>.cpp, for CUDA .cu, and ends with QUERN_KERNELS(<stem>, rows...).
# The last word of its name is a row of the table below, which gives the compiler flags and the processors that
# have it.  finish_copy_<isa>.cpp has no rows: it is what those of an ISA share.  An algorithm is a file
# src/algorithms/<name>.cpp, of a GPU src/<backend>/<name>.cpp, that ends with QUERN_ALGORITHM(<name>, ...).

# isa | folder | CMAKE_SYSTEM_PROCESSOR matches | flags (GCC and Clang; of nvcc: cuda.cmake)
# An ISA may have several rows, for processors that differ.  NEON: where g++ schedules before it allocates registers,
# accumulators are copied and spilled.
set(QUERN_ISA_TABLE
  "ref|ref|.*|"
  "avx2|x86|x86_64|AMD64|-mavx2 -mfma"
  "avx512|x86|x86_64|AMD64|-mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512"
  "amx|x86|x86_64|AMD64|-mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 -mamx-tile -mamx-bf16"
  "neon|arm|aarch64|arm64|ARM64|$<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>"
  "neon|arm|armv7.*|armv8l|-mfpu=neon-vfpv4 $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>"
  "sm75|cuda|x86_64|AMD64|aarch64|--gpu 75 80 90 ptx80"
  "sm80|cuda|x86_64|AMD64|aarch64|--gpu 80 90 ptx80"
  "sm89|cuda|x86_64|AMD64|aarch64|--gpu 89 90 ptx89"
  "sm90a|cuda|x86_64|AMD64|aarch64|--gpu 90a"
)

set(QUERN_ISAS "all" CACHE STRING "instruction sets to build kernels for: all, or a list such as avx2;avx512 (ref is always built)")
set(QUERN_TYPES "all" CACHE STRING "element types to build kernels for: all, or a list such as f32")
set(QUERN_OPERATORS "all" CACHE STRING "operators to build: all, or a list such as conv;gemm")
set(QUERN_ALGORITHMS "all" CACHE STRING "algorithms to build: all, or a list such as conv_direct;conv_im2col (reference is always built)")
set(QUERN_FAMILIES "all" CACHE STRING "kernel families to build: all, or a list such as gemm_f32;depthwise_f32 (ref is always built)")

# 1 when `word` is in the option's list.
function(quern_wanted option word result)
  if("${${option}}" STREQUAL "all" OR word IN_LIST ${option})
    set(${result} 1 PARENT_SCOPE)
  else()
    set(${result} 0 PARENT_SCOPE)
  endif()
endfunction()

# Stops where the option's list has a word that is none of the known ones.
function(quern_known option what known)
  foreach(word IN LISTS ${option})
    if(NOT word STREQUAL "all" AND NOT word IN_LIST known)
      list(REMOVE_DUPLICATES known)
      message(FATAL_ERROR "${option}: no ${what} called '${word}' (known: ${known})")
    endif()
  endforeach()
endfunction()

set(quern_known_isas "")
foreach(row IN LISTS QUERN_ISA_TABLE)
  string(REGEX REPLACE "\\|.*" "" isa "${row}")
  string(REGEX REPLACE "^[^|]*\\|[^|]*\\|(.*)\\|[^|]*$" "^(\\1)$" processor "${row}")
  if(isa IN_LIST quern_known_isas AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "${processor}")
    continue()
  endif()
  set(QUERN_PROCESSOR_${isa} "${processor}")
  string(REGEX REPLACE ".*\\|" "" QUERN_FLAGS_${isa} "${row}")
  string(REGEX REPLACE "^[^|]*\\|([^|]*)\\|.*" "\\1" QUERN_FOLDER_${isa} "${row}")
  list(APPEND quern_known_isas ${isa})
endforeach()
quern_known(QUERN_ISAS "ISA" "${quern_known_isas}")

# Looks in the folder `src`, writes kernels.inc and algorithms.inc into `folder`, sets QUERN_KERNEL_SOURCES,
# of those QUERN_VECTOR_SOURCES, which are compiled for an ISA, and QUERN_CUDA_IMAGES, the files of machine code
# that they embed.
# Algorithms of operators that aren't wanted are left out of the table, and then by the linker, not out of
# the build: others may drive theirs with parts of them.
function(quern_find_kernels src folder)
  set(sources "")
  set(vectors "")
  set(units "")
  set(images "")
  set(table "")
  file(GLOB files CONFIGURE_DEPENDS "${src}/*/*.cpp" "${src}/cuda/*.cu")
  list(FILTER files EXCLUDE REGEX "/(cuda/[^/]*\\.cpp|algorithms/[^/]*)$") # drivers
  foreach(file IN LISTS files)
    get_filename_component(stem "${file}" NAME_WE)
    get_filename_component(backend "${file}" DIRECTORY)
    get_filename_component(backend "${backend}" NAME)
    string(REGEX REPLACE ".*_" "" isa "${stem}")
    if(NOT isa IN_LIST quern_known_isas OR NOT QUERN_FOLDER_${isa} STREQUAL backend)
      message(FATAL_ERROR "src/${backend}/${stem}: no ISA called '${isa}' in the folder ${backend} (the table is in cmake/kernels.cmake)")
    endif()
    if(stem MATCHES "^finish_copy_")
      if(CMAKE_SYSTEM_PROCESSOR MATCHES "${QUERN_PROCESSOR_${isa}}")
        separate_arguments(flags UNIX_COMMAND "${QUERN_FLAGS_${isa}}")
        set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${flags}")
        list(APPEND vectors "${file}")
        list(APPEND sources "${file}")
      endif()
      continue()
    endif()
    file(STRINGS "${file}" own REGEX "^${QUERN_PREFIX_UPPER}_KERNELS\\(${stem},")
    if(NOT own)
      message(FATAL_ERROR "src/${backend}/${stem} does not end with QUERN_KERNELS(${stem}, ...)")
    endif()
    string(REGEX REPLACE "_[^_]*$" "" family "${stem}")
    # Of every processor: a list may name what this one has not.
    list(APPEND families ${family})
    if(isa STREQUAL "ref")
      string(REGEX REPLACE "_.*" "" op "${stem}")
      list(APPEND operators ${op})
    else()
      string(REGEX REPLACE ".*_([^_]*)_[^_]*$" "\\1" type "${stem}")
      list(APPEND types ${type})
    endif()
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "${QUERN_PROCESSOR_${isa}}")
      continue()
    endif()
    if(backend STREQUAL "cuda" AND NOT QUERN_CUDA_TOOLKIT)
      continue()
    endif()
    if(NOT isa STREQUAL "ref")
      quern_wanted(QUERN_ISAS ${isa} wanted_isa)
      quern_wanted(QUERN_TYPES ${type} wanted_type)
      quern_wanted(QUERN_FAMILIES ${family} wanted_family)
      if(NOT wanted_isa OR NOT wanted_type OR NOT wanted_family)
        continue()
      endif()
      separate_arguments(flags UNIX_COMMAND "${QUERN_FLAGS_${isa}}")
      if(backend STREQUAL "cuda")
        string(REGEX REPLACE "_[^_]*(_[^_]*)$" "\\1" unit "${stem}") # without its type
        list(APPEND units ${unit})
        list(APPEND files_of_${unit} "${file}")
        set(flags_of_${unit} ${flags})
      else()
        set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${flags}")
        list(APPEND vectors "${file}")
      endif()
    else()
      quern_wanted(QUERN_OPERATORS ${op} wanted)
      if(NOT wanted)
        continue()
      endif()
    endif()
    if(NOT backend STREQUAL "cuda")
      list(APPEND sources "${file}")
    endif()
    file(STRINGS "${file}" rows REGEX "kind::[a-z0-9_]+")
    foreach(row IN LISTS rows)
      string(REGEX REPLACE ".*kind::([a-z0-9_]+).*" "\\1" row "${row}")
      list(APPEND kinds ${row})
    endforeach()
    string(APPEND table "${QUERN_PREFIX_UPPER}_FILE(${stem}, ${backend})\n")
  endforeach()
  list(REMOVE_DUPLICATES units)
  foreach(unit IN LISTS units)
    quern_cuda_kernels(${unit} "${files_of_${unit}}" "${src}" "${folder}" "${flags_of_${unit}}" source image)
    list(APPEND sources "${source}")
    list(APPEND images "${image}")
  endforeach()
  set(QUERN_CUDA_IMAGES "${images}" PARENT_SCOPE)
  file(CONFIGURE OUTPUT "${folder}/kernels.inc" CONTENT "${table}")

  file(GLOB files CONFIGURE_DEPENDS "${src}/algorithms/*.cpp")
  if(table MATCHES ", cuda\\)")
    file(GLOB drivers CONFIGURE_DEPENDS "${src}/cuda/*.cpp")
    list(APPEND files ${drivers})
    list(APPEND sources ${drivers})
  endif()
  set(QUERN_KERNEL_SOURCES "${sources}" PARENT_SCOPE)
  set(QUERN_VECTOR_SOURCES "${vectors}" PARENT_SCOPE)
  set(table "")
  foreach(file IN LISTS files)
    get_filename_component(stem "${file}" NAME_WE)
    file(STRINGS "${file}" own REGEX "^${QUERN_PREFIX_UPPER}_ALGORITHM\\(")
    if(own)
      string(REGEX REPLACE "_.*" "" op "${stem}")
      quern_wanted(QUERN_OPERATORS ${op} wanted_op)
      quern_wanted(QUERN_ALGORITHMS ${stem} wanted)
      # One whose kernels are left out would be dead weight.
      file(STRINGS "${file}" drives REGEX "drives = kind::")
      string(REGEX REPLACE ".*drives = kind::([a-z0-9_]+).*" "\\1" drives "${drives}")
      if(NOT QUERN_FAMILIES STREQUAL "all" AND NOT drives IN_LIST kinds)
        set(wanted 0)
      endif()
      if((wanted_op AND wanted) OR op STREQUAL "reference")
        string(APPEND table "${QUERN_PREFIX_UPPER}_ALGORITHM_FILE(${stem})\n")
      endif()
      list(APPEND names ${stem})
      list(APPEND operators ${op})
    endif()
  endforeach()
  quern_known(QUERN_ALGORITHMS "algorithm" "${names}")
  quern_known(QUERN_FAMILIES "kernel family" "${families}")
  quern_known(QUERN_TYPES "element type" "${types}")
  quern_known(QUERN_OPERATORS "operator" "${operators}")
  file(CONFIGURE OUTPUT "${folder}/algorithms.inc" CONTENT "${table}")
endfunction()
