// Check that the instructions of a Program from a file are such as their kernels' records declare, before the Program runs.
//
// Each instruction must meet these conditions:
// * Its kernel is one of the kernel library's.
// * It has exactly the kernel's number of operands, and at least the kernel's numbers of ints and floats.
// * Its ints that are sizes are at least 1, and all its ints are within bounds.
// * It has the number of tasks that its ints make.
// * Its operands are aligned.
// * It reads and writes no byte outside an operand's memory. The kernel's record tells which bytes it reads and writes.
// * It does not write to inputs, or to constants (tables of offsets are among them).
// * It does not write where a kernel keeps positions that the kernel relies on while it runs.
#pragma once

#include "core/bound_program.h"

namespace ngraph_mxnet {

// Checks that operands lie in memory that exists, and each instruction against its kernel's record. The kernels must be the
// table's. Throws std::invalid_argument that names the instruction and what is wrong with it.
void check_instructions(const BoundProgram& program, const Surroundings& around);

}  // namespace ngraph_mxnet
