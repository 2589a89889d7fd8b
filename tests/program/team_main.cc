// What a team does with work of random phases: team_main CALLERS CALLS THREADS [held | shared]. Prints "same" where every
// call gave what one thread gives, also calls while the workers are held up, or other processes keep the cores busy.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/places.h"
#include "core/team.h"

namespace ngraph_mxnet {

// As on a machine with so many cores.
int usable_cores() { return 8; }
bool binds_threads() { return false; }
void bind_to_place(int, int, int*) {}

}  // namespace ngraph_mxnet

namespace {

using ngraph_mxnet::run_on_team;

// Each chunk reads all that the phase before has written.
class Sums final : public ngraph_mxnet::TeamWork {
 public:
  explicit Sums(unsigned seed) {
    std::mt19937 random(seed);
    for (unsigned i = random() % 12 + 1; i > 0; --i) {
      phases_.push_back({static_cast<int>(random() % 20), random() % 3 == 0});
      sums_.emplace_back(phases_.back().chunks);
    }
  }

  int phases() const override { return static_cast<int>(phases_.size()); }
  Phase phase(int number) const override { return phases_[number]; }
  void run(int phase, int chunk) override {
    long sum = phase + 1;
    if (phase > 0) {
      for (const long before : sums_[phase - 1]) sum += before;
    }
    sums_[phase][chunk] += sum % 1000 + chunk;
  }
  void ended(int phase) override { in_order_ = in_order_ && phase == ended_++; }

  bool whole() const { return in_order_ && ended_ == phases(); }
  const std::vector<std::vector<long>>& sums() const { return sums_; }

 private:
  std::vector<Phase> phases_;
  std::vector<std::vector<long>> sums_;
  int ended_ = 0;
  bool in_order_ = true;
};

void fail(const char* what) {
  std::puts(what);
  std::exit(1);
}

void call(unsigned seed, int threads) {
  Sums found(seed), expected(seed);
  run_on_team(threads, &found);
  run_on_team(1, &expected);
  if (!found.whole() || !expected.whole()) fail("phases are left out, or out of order");
  if (found.sums() != expected.sums()) fail("other sums");
}

std::atomic<bool> held{false};
std::atomic<int> waiting{0};

void hold(int) {
  waiting.fetch_add(1);
  while (held.load()) usleep(1000);
}

// All threads of the process but this one.
int hold_others() {
  held = true;
  struct sigaction action {};
  action.sa_handler = hold;
  sigaction(SIGUSR1, &action, nullptr);
  int count = 0;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const task = readdir(tasks)) {
    const int thread = std::atoi(task->d_name);
    if (thread == 0 || thread == getpid()) continue;
    if (syscall(SYS_tgkill, getpid(), thread, SIGUSR1) == 0) ++count;
  }
  closedir(tasks);
  return count;
}

// Threads that take part in one call; chunks are long enough for all to come.
int threads_of_call(int wanted) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  run_on_team(wanted, 64, [&](int) {
    usleep(1000);
    const std::lock_guard<std::mutex> lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return static_cast<int>(seen.size());
}

// A process that keeps `threads` threads busy for a second.
pid_t neighbour(int threads) {
  const pid_t child = fork();
  if (child != 0) return child;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  run_on_team(threads, 64, [&](int) {
    while (std::chrono::steady_clock::now() < end) usleep(1000);
  });
  _exit(0);
}

// On eight cores.
void share() {
  if (threads_of_call(8) != 8) fail("alone a call has all cores");
  const pid_t first = neighbour(2);
  usleep(300000);
  if (threads_of_call(8) != 6) fail("a call takes what a neighbour leaves");
  usleep(100000);  // a call counts for its time once more
  const pid_t second = neighbour(8);
  usleep(300000);
  // The second has the six that the first left, so there is nothing but this process's share.
  if (threads_of_call(8) != 2) fail("a call takes its share at least");
  waitpid(first, nullptr, 0);
  waitpid(second, nullptr, 0);
  sleep(2);
  if (threads_of_call(8) != 8) fail("neighbours are gone");
}

}  // namespace

int main(int, char** arguments) {
  const int callers = std::atoi(arguments[1]), calls = std::atoi(arguments[2]), threads = std::atoi(arguments[3]);
  std::vector<std::thread> started;
  for (int caller = 0; caller < callers; ++caller) {
    started.emplace_back([=] {
      for (int i = 0; i < calls; ++i) {
        call(caller * 1000003 + i, threads);
        if (i % 50 == 0) usleep(i % 700);
      }
    });
  }
  for (std::thread& each : started) each.join();
  usleep(20000);  // no thread has a chunk any more
  if (arguments[4] != nullptr && arguments[4] == std::string("shared")) {
    share();
  } else if (arguments[4] != nullptr) {
    if (const int count = hold_others(); count < threads - 1) fail("no workers");
    while (waiting == 0) usleep(1000);
    for (int i = 0; i < 100; ++i) call(i, threads);
    held = false;
    for (int i = 0; i < 100; ++i) call(i, threads);
  }
  std::puts("same");
}
