// Whether a Program's instructions are such as their kernels' records declare: for what comes from a file, before it runs.
//
// Checked of every instruction: that the kernel is one of the kernel library's; the numbers of operands, ints and floats;
// that what counts is at least 1 and within bounds; the number of tasks; that an operand is aligned; that no byte outside an
// operand's memory is read or written, of which the kernel's record tells; that nothing writes to inputs, or to constants
// (tables of offsets are among them), or where a kernel keeps positions that it relies on while it runs.
#pragma once

#include "core/bound_program.h"

namespace ngraph_mxnet {

// Of a Program whose operands check_operands() has let pass, and whose kernels are the table's.
// Throws std::invalid_argument that names the instruction and what is wrong with it.
void check_instructions(const BoundProgram& program, const Surroundings& around);

}  // namespace ngraph_mxnet
