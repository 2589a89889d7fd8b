#include "core/places.h"

#include <algorithm>
#include <vector>

#include <dlfcn.h>
#include <sched.h>

namespace ngraph_mxnet {

namespace {

// Returns the cores that the kernel lets this process run on.
int allowed_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

#ifdef NGRAPH_PLACES_OF_LIBGOMP

// The functions of libgomp that tell what it has read, by OpenMP's names for them. It is the process's own, which MXNet
// runs on, or the system's. Where there is none, nobody says where threads are to run.
class LibGomp {
 public:
  int (*get_num_procs)() = nullptr;
  int (*get_proc_bind)() = nullptr;
  int (*get_num_places)() = nullptr;
  int (*get_place_num_procs)(int place) = nullptr;
  void (*get_place_proc_ids)(int place, int* cores) = nullptr;

  LibGomp() {
    void* const library = dlopen("libgomp.so.1", RTLD_NOW);
    if (library == nullptr) return;
    found_ = find(library, "omp_get_num_procs", &get_num_procs) && find(library, "omp_get_proc_bind", &get_proc_bind) &&
             find(library, "omp_get_num_places", &get_num_places) &&
             find(library, "omp_get_place_num_procs", &get_place_num_procs) &&
             find(library, "omp_get_place_proc_ids", &get_place_proc_ids);
  }

  explicit operator bool() const { return found_; }

 private:
  template <class Function>
  static bool find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }

  bool found_ = false;
};

// Loaded with this library: libgomp reads the environment when it is.
const LibGomp libgomp;

// OpenMP's numbers of the ways to bind threads (omp_proc_bind_t).
enum Binding { kNotBound = 0, kMaster = 2, kSpread = 4 };

// Returns the place that libgomp chooses for a thread of a team that starts at the first place. If a team has more
// threads than there are places, neighbours share a place.
int place_of(int thread, int team, int places) {
  if (libgomp.get_proc_bind() == kMaster) return 0;
  const bool spread = team > places || libgomp.get_proc_bind() == kSpread;
  return spread ? static_cast<int>(static_cast<long>(thread) * places / team) : thread;
}

int bound_places() {
  static const int places = !libgomp || libgomp.get_proc_bind() == kNotBound ? 0 : libgomp.get_num_places();
  return places;
}

#endif

}  // namespace

#ifdef NGRAPH_PLACES_OF_LIBGOMP

int usable_cores() { return libgomp ? std::max(libgomp.get_num_procs(), 1) : allowed_cores(); }

bool binds_threads() { return bound_places() > 0; }

void bind_to_place(int thread, int team, int* place) {
  const int places = bound_places();
  if (places == 0) return;
  const int chosen = place_of(thread, team, places);
  if (*place == chosen + 1) return;
  *place = chosen + 1;
  std::vector<int> cores(libgomp.get_place_num_procs(chosen));
  libgomp.get_place_proc_ids(chosen, cores.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);  // if it is not allowed, the thread runs where it may
}

#else  // nobody says where threads are to run

int usable_cores() { return allowed_cores(); }

bool binds_threads() { return false; }

void bind_to_place(int, int, int*) {}

#endif

}  // namespace ngraph_mxnet
