# SPDX-License-Identifier: MIT
#
# CUDA kernels, compiled ahead by nvcc into one fat binary a file, which the host's half of the same file
# embeds.  Nothing of CUDA's is linked.

set(QUERN_CUDA "AUTO" CACHE STRING "CUDA kernels: AUTO (when there is an nvcc), ON, OFF, or HOST: without machine code, \
for tests that run them on the CPU")
set_property(CACHE QUERN_CUDA PROPERTY STRINGS AUTO ON OFF HOST)
set(QUERN_CUDA_TOOLKIT "") # 1000 * major + 10 * minor of nvcc; empty: no CUDA kernels
if(QUERN_CUDA STREQUAL "HOST")
  set(QUERN_CUDA_TOOLKIT 12080)
  message(STATUS "CUDA kernels: for tests on the CPU alone, no GPU will take them")
elseif(QUERN_CUDA AND NOT (QUERN_CUDA STREQUAL "AUTO" AND CMAKE_CROSSCOMPILING))
  find_program(QUERN_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
  mark_as_advanced(QUERN_NVCC)
  set(found "there is none")
  if(QUERN_NVCC)
    execute_process(COMMAND "${QUERN_NVCC}" --version OUTPUT_VARIABLE found ERROR_QUIET)
    if(found MATCHES "release ([0-9]+)\\.([0-9]+)")
      set(found "${QUERN_NVCC} is of CUDA ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
      math(EXPR toolkit "1000 * ${CMAKE_MATCH_1} + 10 * ${CMAKE_MATCH_2}")
      if(toolkit GREATER_EQUAL 12080)
        set(QUERN_CUDA_TOOLKIT ${toolkit})
      endif()
    endif()
  endif()
  if(QUERN_CUDA_TOOLKIT)
    message(STATUS "CUDA kernels: ${found}")
  elseif(QUERN_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA kernels are left out: they need nvcc of CUDA 12.8 or later, ${found}")
  else()
    message(FATAL_ERROR "QUERN_CUDA is ${QUERN_CUDA}, which needs nvcc of CUDA 12.8 or later: ${found} "
      "(CUDA_PATH names its folder; -DQUERN_CUDA=OFF leaves the CUDA kernels out)")
  endif()
endif()

# Compiles `files`, which differ by their type alone, for the GPUs that `flags` name (--gpu 75 80 ptx80: machine code,
# and PTX for later ones) into one fat binary, where what they have in common is compressed away, and has them compiled
# once more as C++, for their rows: as one source, which embeds it.  Sets `out_source` and `out_image`.  Warnings of ptxas
# are errors too (no spill, no local memory), and what it only mentions (nvcc.sh).
function(quern_cuda_kernels unit files src folder flags out_source out_image)
  set(source "${folder}/${unit}.cu")
  set(image "${folder}/${unit}.fatbin")
  set(targets "")
  list(REMOVE_ITEM flags --gpu)
  foreach(target IN LISTS flags)
    if(target MATCHES "^ptx(.*)")
      list(APPEND targets "-gencode=arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1}")
    else()
      list(APPEND targets "-gencode=arch=compute_${target},code=sm_${target}")
    endif()
  endforeach()
  list(TRANSFORM files REPLACE "(.+)" "#include \"\\1\"\n")
  string(JOIN "" files ${files})
  file(CONFIGURE OUTPUT "${source}" CONTENT "${files}")
  set(warnings -Xptxas -warn-spills,-warn-lmem-usage)
  if(QUERN_WERROR)
    list(APPEND warnings -Werror=all-warnings)
  endif()
  if(QUERN_CUDA STREQUAL "HOST")
    file(CONFIGURE OUTPUT "${image}" CONTENT "no machine code (QUERN_CUDA=HOST)\n") # which a driver refuses
  else()
    # No contraction, as on the CPU.
    add_custom_command(OUTPUT "${image}"
      COMMAND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/nvcc.sh" "${image}"
        "${QUERN_NVCC}" -fatbin -std=c++17 -O3 -fmad=false --expt-relaxed-constexpr --compress-mode=size ${targets}
        ${warnings} "-I${src}" "-I${src}/algorithms" "-I${src}/kernels" "-I${src}/../include" -MD -MF "${image}.d" -MT "${image}" "${source}" -o "${image}"
      DEPENDS "${source}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/nvcc.sh" DEPFILE "${image}.d"
      COMMENT "Building CUDA fat binary ${unit}.fatbin" VERBATIM)
  endif()
  set_source_files_properties("${source}" PROPERTIES LANGUAGE CXX OBJECT_DEPENDS "${image}"
    COMPILE_OPTIONS "-x;c++" COMPILE_DEFINITIONS "${QUERN_PREFIX_UPPER}_IMAGE_FILE=\"${image}\"")
  set(${out_source} "${source}" PARENT_SCOPE)
  set(${out_image} "${image}" PARENT_SCOPE)
endfunction()
