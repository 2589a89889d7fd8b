#include "core/places.h"

#include <algorithm>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#include <sched.h>

namespace ngraph_mxnet {

#ifdef _OPENMP

namespace {

// Returns the place that libgomp chooses for a thread of a team that starts at the first place. If a team has more
// threads than there are places, neighbours share a place.
int place_of(int thread, int team, int places) {
  if (omp_get_proc_bind() == omp_proc_bind_master) return 0;
  const bool spread = team > places || omp_get_proc_bind() == omp_proc_bind_spread;
  return spread ? static_cast<int>(static_cast<long>(thread) * places / team) : thread;
}

int bound_places() {
  static const int places = omp_get_proc_bind() == omp_proc_bind_false ? 0 : omp_get_num_places();
  return places;
}

}  // namespace

int usable_cores() { return std::max(omp_get_num_procs(), 1); }

bool binds_threads() { return bound_places() > 0; }

void bind_to_place(int thread, int team, int* place) {
  const int places = bound_places();
  if (places == 0) return;
  const int chosen = place_of(thread, team, places);
  if (*place == chosen + 1) return;
  *place = chosen + 1;
  std::vector<int> cores(omp_get_place_num_procs(chosen));
  omp_get_place_proc_ids(chosen, cores.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);  // if it is not allowed, the thread runs where it may
}

#else  // nobody says where threads are to run

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

bool binds_threads() { return false; }

void bind_to_place(int, int, int*) {}

#endif

}  // namespace ngraph_mxnet
