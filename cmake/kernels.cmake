# The kernels' objects, which the package and the runtime library are made of.
get_filename_component(NGRAPH_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(NGRAPH_KERNEL_FOLDER "" CACHE PATH "The folder of a build of these sources whose kernels to take: none is compiled")
set(NGRAPH_ISAS avx512 avx2 baseline CACHE STRING "Instruction sets to compile the kernels for")

function(ask_python code result)
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "${code}" OUTPUT_VARIABLE answer
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

# The kernels, compiled ahead of time: an object for each family and instruction set.
function(add_kernel_objects result)
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "import numba" RESULT_VARIABLE without_numba ERROR_QUIET)
  if(without_numba)
    message(FATAL_ERROR "Numba compiles the kernels, and ${Python_EXECUTABLE} can't import it: pip install numba, or name "
                        "a Python that has it, -DPython_EXECUTABLE=...")
  endif()
  # What compiles them decides about the objects as the sources do; the file is written anew only when that changes.
  ask_python("import sys, llvmlite, numba; print(sys.version, 'numba', numba.__version__, 'llvmlite', llvmlite.__version__)"
             KERNEL_COMPILER)
  file(CONFIGURE OUTPUT kernel_compiler.txt CONTENT "@KERNEL_COMPILER@\n" @ONLY)
  # ninja compiles anew when a command changes; so Python's path, which does from one environment to the next, is not in it.
  file(CONFIGURE OUTPUT compile_kernels.sh CONTENT [[exec "@Python_EXECUTABLE@" -m ngraph_mxnet.targets.cpu.aot "$@"
]] @ONLY)
  string(REGEX MATCH "numba ([0-9.]+)" ignored "${KERNEL_COMPILER}")
  contains(numba "${CMAKE_MATCH_1}" BSD-2-Clause "functions of its library that kernels call, compiled into them")
  # Python says which families there are and the files that each is made of; when one of these changes, or a module
  # comes or goes, it is asked again.
  execute_process(COMMAND "${Python_EXECUTABLE}" -m ngraph_mxnet.targets.cpu.aot --list OUTPUT_VARIABLE KERNEL_FAMILIES
                  WORKING_DIRECTORY "${NGRAPH_ROOT}" OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" KERNEL_FAMILIES "${KERNEL_FAMILIES}")
  file(GLOB KERNEL_MODULES CONFIGURE_DEPENDS ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/kernels/*.py)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}")
  if(NGRAPH_KERNEL_FOLDER)
    set(folder "${NGRAPH_KERNEL_FOLDER}")
  endif()
  foreach(line ${KERNEL_FAMILIES})
    separate_arguments(sources UNIX_COMMAND "${line}")
    list(POP_FRONT sources family)
    list(TRANSFORM sources PREPEND "${NGRAPH_ROOT}/")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
    foreach(isa ${NGRAPH_ISAS})
      set(object "${folder}/${family}_${isa}.o")
      list(APPEND objects "${object}")
      if(NGRAPH_KERNEL_FOLDER)
        if(NOT EXISTS "${object}")
          message(FATAL_ERROR "There is no ${object}: build the package, or unset NGRAPH_KERNEL_FOLDER")
        endif()
        continue()
      endif()
      add_custom_command(
        OUTPUT "${object}"
        COMMAND sh "${CMAKE_CURRENT_BINARY_DIR}/compile_kernels.sh" --isa ${isa} --family ${family} --output "${object}"
        DEPENDS ${sources} "${CMAKE_CURRENT_BINARY_DIR}/kernel_compiler.txt"
        WORKING_DIRECTORY "${NGRAPH_ROOT}"
        COMMENT "Compiling the ${family} kernels for ${isa}"
        VERBATIM)
    endforeach()
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${result} "${objects}" PARENT_SCOPE)
endfunction()

# A source with the table of these objects' kernels (csrc/core/kernel_table.h).
function(add_kernel_table result)
  file(GLOB_RECURSE records CONFIGURE_DEPENDS ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/params/*.py
       ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/*params.py
       ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/*variants.py)
  set(table "${CMAKE_CURRENT_BINARY_DIR}/kernel_names.cc")
  add_custom_command(
    OUTPUT "${table}"
    COMMAND "${Python_EXECUTABLE}" -m ngraph_mxnet.targets.cpu.kernel_table --nm "${CMAKE_NM}" --output "${table}"
            ${ARGN}
    DEPENDS ${ARGN} ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/kernel_table.py
            ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/checks.py
            ${NGRAPH_ROOT}/ngraph_mxnet/targets/cpu/machine/isa.py
            ${records}
    WORKING_DIRECTORY "${NGRAPH_ROOT}"
    COMMENT "Writing the table of kernels"
    VERBATIM)
  set(${result} "${table}" PARENT_SCOPE)
endfunction()
