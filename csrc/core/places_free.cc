// Without OpenMP nobody says where threads are to run.
#include <algorithm>

#include <sched.h>

#include "core/places.h"

namespace ngraph_mxnet {

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

bool binds_threads() { return false; }

void bind_to_place(int, int, int*) {}

}  // namespace ngraph_mxnet
