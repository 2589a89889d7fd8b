// Whether a Program's instructions are such as their kernels' records declare: for what comes from a file, before it
// runs. As ngraph_mxnet/targets/cpu/program/validate.py, which lists what is checked.
#pragma once

#include "core/program.h"

namespace ngraph_mxnet {

// Of a Program whose operands check_operands() has let pass, and whose kernels are the table's.
// Throws std::invalid_argument that names the instruction and what is wrong with it.
void check_instructions(const Program& program, const Surroundings& around);

}  // namespace ngraph_mxnet
