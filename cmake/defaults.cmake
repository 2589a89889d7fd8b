# What both projects compile with, after project().
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# What the libraries hold beside our code, for the wheel's bill of materials (sbom.py).
set(COMPONENTS "${CMAKE_CURRENT_BINARY_DIR}/components.txt")
file(WRITE "${COMPONENTS}" "")
function(contains name version licence what)
  string(JOIN "\t" line "${name}" "${version}" "${licence}" "${what}")
  file(APPEND "${COMPONENTS}" "${line}\n")
endfunction()

set(GCC_LICENCE "GPL-3.0-or-later WITH GCC-exception-3.1")
contains(libgcc "${CMAKE_CXX_COMPILER_VERSION}" "${GCC_LICENCE}" "its static part, and what begins and ends each library")
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE GLIBC_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "glibc " "" GLIBC_VERSION "${GLIBC_VERSION}")
contains(glibc "${GLIBC_VERSION}" "LGPL-2.1-or-later with unlimited permission to link the compiled files"
         "libc_nonshared.a, the part of it that is linked statically everywhere")
function(link_libstdcxx_statically target)
  # Without its parts that nobody calls.
  target_link_options(${target} PRIVATE -static-libstdc++ LINKER:--gc-sections)
  contains(libstdc++ "${CMAKE_CXX_COMPILER_VERSION}" "${GCC_LICENCE}" "linked statically")
endfunction()

set(NGRAPH_GLIBC "" CACHE STRING "The oldest glibc that the libraries run with, such as 2.28; empty: that of this machine")

# Links a library so that NGRAPH_GLIBC is enough, with the C++ library in it. libgcc stays apart: exceptions of other
# libraries pass through ours. glibc's own libraries of threads and of dlopen were apart before 2.34.
function(link_for_old_glibc target)
  if(NOT NGRAPH_GLIBC)
    return()
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/glibc-${NGRAPH_GLIBC}")
  execute_process(COMMAND "${Python_EXECUTABLE}" "${NGRAPH_ROOT}/cmake/old_glibc.py" "${NGRAPH_GLIBC}" "${folder}"
                          "${CMAKE_C_COMPILER}" "${CMAKE_READELF}"
                  COMMAND_ERROR_IS_FATAL ANY)
  target_link_options(${target} PRIVATE "-L${folder}")
  get_target_property(language ${target} LINKER_LANGUAGE)
  if(NOT language STREQUAL C)
    target_sources(${target} PRIVATE "${NGRAPH_ROOT}/csrc/core/old_glibc.c")
    link_libstdcxx_statically(${target})
    target_link_libraries(${target} PRIVATE -Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
                                            -Wl,--pop-state)
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM COMMAND "${Python_EXECUTABLE}"
                       "${NGRAPH_ROOT}/cmake/old_glibc.py" --check "$<TARGET_FILE:${target}>" "${CMAKE_NM}")
  endif()
endfunction()
