#include "core/team.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include "core/lock_order.h"
#include "core/places.h"

namespace ngraph_mxnet {

namespace {

// Ticks, at two to four a nanosecond: how long a computation counts that is not told to be over, and after what time a
// slot is given to another process.
constexpr std::uint64_t kLongest = 4'000'000'000, kAbandoned = 40'000'000'000;
constexpr std::uint64_t kMostThreads = 4096;

// nullptr where there is no such memory, or the file is another user's.
void* mapped(const std::string& path, std::size_t bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) return nullptr;
  struct stat status;
  void* data = MAP_FAILED;
  // Room that is not there would be found out by a signal, at the first store.
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
      posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  return data == MAP_FAILED ? nullptr : data;
}

// Counts of busy threads that the processes of one user tell each other, in a file of shared memory that all of them
// map. Threads that outnumber the cores take cores from each other in the middle of their work. Two processes that both
// use all cores are slower than if each used half. The counts are hints: no result depends on them. A process that ends
// without a word is forgotten within seconds. Where there is no shared memory, each process is alone.
class Neighbours {
 public:
  // Threads that others keep busy, in so many processes.
  struct Busy {
    int threads = 0, processes = 0;
  };

  // The file is made if it is not there.
  explicit Neighbours(const std::string& path) : table_(static_cast<Table*>(mapped(path, sizeof(Table)))) {}
  // The user's own, or nullptr: NGRAPH_SHARE_CORES=0, threads bound to places, no shared memory.
  static Neighbours* instance() {
    Neighbours* instance = latest.load(std::memory_order_acquire);
    if (instance != nullptr) return instance->table_ == nullptr ? nullptr : instance;
    const char* const share = std::getenv("NGRAPH_SHARE_CORES");
    const bool alone = (share != nullptr && std::string_view(share) == "0") || binds_threads();
    auto* const made = new Neighbours(alone ? "" : "/dev/shm/ngraph_mxnet-1-" + std::to_string(geteuid()));
    // No lock, which a fork could leave locked for ever. Of two that are made at once, one is not used.
    latest.compare_exchange_strong(instance, made, std::memory_order_acq_rel);
    return Neighbours::instance();
  }

  // Returns the busy threads of those other processes that may use exactly the cores `cores`, a value of `core_set`.
  Busy busy(std::uint64_t cores) const {
    Busy busy;
    const std::uint64_t time = ticks(), own = owner_.load(std::memory_order_relaxed);
    const auto used = std::min<std::uint64_t>(table_->used.load(std::memory_order_relaxed), kSlots);
    for (std::uint64_t i = 0; i < used; ++i) {
      const Slot& slot = table_->slots[i];
      const std::uint64_t until = slot.until.load(std::memory_order_relaxed);
      if (until <= time || until > time + kLongest || slot.cores.load(std::memory_order_relaxed) != cores) continue;
      if (slot.owner.load(std::memory_order_relaxed) == own) continue;
      busy.threads += static_cast<int>(std::min(slot.threads.load(std::memory_order_relaxed), kMostThreads));
      ++busy.processes;
    }
    return busy;
  }

  // So many threads of this process have begun to compute on these cores, or still do.
  void begin(std::uint64_t cores, int threads) {
    Slot* const own = slot();
    if (own == nullptr) return;
    own->cores.store(cores, std::memory_order_relaxed);
    own->threads.store(threads, std::memory_order_relaxed);
    own->until.store(ticks() + kLongest, std::memory_order_relaxed);
  }

  // None of this process computes any more. For another `ticks`, what it took, others still count `threads`: who
  // computes half of the time goes on soon.
  void end(int threads, std::uint64_t ticks) {
    Slot* const own = slot();
    if (own == nullptr) return;
    own->threads.store(threads, std::memory_order_relaxed);
    own->until.store(Neighbours::ticks() + std::min(ticks, kLongest), std::memory_order_relaxed);
  }

  // In the child, whose slot is the parent's.
  static void after_fork() {
    Neighbours* const instance = latest.load(std::memory_order_acquire);
    if (instance == nullptr) return;
    instance->slot_.store(nullptr, std::memory_order_relaxed);
    instance->owner_.store(0, std::memory_order_relaxed);
  }

  // A number for the set of cores that the calling thread may use.
  static std::uint64_t core_set() {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&cores);
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (std::size_t i = 0; i < sizeof cores; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
  }

  // A clock that is the same on all cores and takes a few nanoseconds to read.
  static std::uint64_t ticks() { return __rdtsc(); }

 private:
  static constexpr int kSlots = 127;

  struct alignas(kAlignment) Slot {
    std::atomic<std::uint64_t> owner{0};  // 0: nobody's
    std::atomic<std::uint64_t> cores{0};
    std::atomic<std::uint64_t> until{0};  // ticks; others count the threads so long
    std::atomic<std::uint64_t> threads{0};
  };
  struct Table {
    alignas(kAlignment) std::atomic<std::uint64_t> used{0};  // slots that were ever anyone's
    Slot slots[kSlots];
  };

  // Its own, or nullptr: all are taken. Two threads that claim one at once waste one.
  Slot* slot() {
    Slot* const known = slot_.load(std::memory_order_acquire);
    if (known != nullptr && known->owner.load(std::memory_order_relaxed) == owner_.load(std::memory_order_relaxed)) {
      return known;
    }
    const std::uint64_t time = ticks(), id = (static_cast<std::uint64_t>(getpid()) << 32) | (time & 0xffffffff);
    for (std::uint64_t i = 0; i < kSlots; ++i) {
      Slot& slot = table_->slots[i];
      std::uint64_t owner = slot.owner.load(std::memory_order_relaxed);
      const std::uint64_t until = slot.until.load(std::memory_order_relaxed);
      // Abandoned, or written before the machine started.
      const bool abandoned = until + kAbandoned < time || until > time + kLongest;
      if (owner != 0 && !abandoned) continue;
      slot.until.store(time, std::memory_order_relaxed);
      if (!slot.owner.compare_exchange_strong(owner, id, std::memory_order_relaxed)) continue;
      owner_.store(id, std::memory_order_relaxed);
      slot_.store(&slot, std::memory_order_release);
      std::uint64_t used = table_->used.load(std::memory_order_relaxed);
      while (used < i + 1 && !table_->used.compare_exchange_weak(used, i + 1, std::memory_order_relaxed)) {
      }
      return &slot;
    }
    return nullptr;
  }

  // Never destroyed: threads may outlive static objects.
  inline static std::atomic<Neighbours*> latest{nullptr};

  Table* table_ = nullptr;
  std::atomic<Slot*> slot_{nullptr};
  std::atomic<std::uint64_t> owner_{0};
};

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr nanoseconds kInCall = microseconds(100);

void futex(const std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

// That this thread may use.
struct Cores {
  int count = 0;
  std::uint64_t set = 0;
};

// Returns the cores that this thread may use, as of lately: to ask the system takes as long as a small graph.
const Cores& cores() {
  constexpr std::uint64_t kRest = 100'000'000;  // ticks
  thread_local Cores cores;
  thread_local std::uint64_t next_look = 0;
  const std::uint64_t time = Neighbours::ticks();
  if (cores.count == 0 || time >= next_look) {
    next_look = time + kRest;
    cores = {std::max(usable_cores(), 1), Neighbours::core_set()};
  }
  return cores;
}

// Threads of all teams now running.
std::atomic<int> busy_threads{0};

// Threads that outnumber the cores slow each other down, so calls that overlap share the cores, also those of other
// processes; a call alone gets what it asked for.
class Lease {
 public:
  explicit Lease(int wanted) : begin_(Neighbours::ticks()) {
    const int all = wanted > 1 ? left_by_neighbours() : 1;
    int busy = busy_threads.load(std::memory_order_relaxed);
    do {
      size_ = std::clamp(all - busy, 1, std::clamp(wanted, 1, all));
    } while (!busy_threads.compare_exchange_weak(busy, busy + size_, std::memory_order_relaxed));
    if (neighbours_ != nullptr) neighbours_->begin(cores().set, busy + size_);
  }
  ~Lease() {
    const int busy = busy_threads.fetch_sub(size_, std::memory_order_relaxed) - size_;
    if (neighbours_ == nullptr) return;
    if (busy > 0) {
      neighbours_->begin(cores().set, busy);
    } else {
      neighbours_->end(size_, Neighbours::ticks() - begin_);
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  int size() const { return size_; }

 private:
  // At least this process's share: who came first may have taken all.
  int left_by_neighbours() const {
    const Cores& mine = cores();
    if (neighbours_ == nullptr || mine.count == 1) return mine.count;
    const Neighbours::Busy busy = neighbours_->busy(mine.set);
    return std::max({mine.count - busy.threads, mine.count / (busy.processes + 1), 1});
  }

  Neighbours* const neighbours_ = Neighbours::instance();
  const std::uint64_t begin_;
  int size_;
};

// Meeting point of the threads of one call. It is never destroyed: a thread that comes late may look at it at any time.
// The call may be over then, or another call may have begun, with which the thread then helps.
class Meeting {
 public:
  // Threads that are called to `serve` from now on find this work.
  void begin(TeamWork* work, int team) {
    work_ = work;
    shares_.store(std::min(team, kShares), std::memory_order_relaxed);
    signal_.add(1);
  }

  // Works until all is done. By who has begun it.
  void run() {
    go_on(0);
    serve(0);
  }

  // Works as number `thread` of the team while there is work.
  void serve(int thread) {
    for (;;) {
      const std::uint32_t seen = signal_.get();
      if (seen % 2 == 0) return;
      const int done = take_chunks(thread);
      if (done > 0 && left_.fetch_sub(done, std::memory_order_acq_rel) == done) {
        work_->ended(phase_);
        go_on(phase_ + 1);
      } else {
        signal_.wait_while(seen, kInCall, false);
      }
    }
  }

 private:
  static constexpr int kShares = 64;

  // Minus the chunks of a share that nobody has taken; 0 and more when there are none.
  struct alignas(kAlignment) Share {
    std::atomic<int> next{0};
  };

  // Runs serial phases, and opens the next of the others. This thread alone has what is left of the work. No other
  // thread changes the members that are not atomic meanwhile, or reads them without a chunk.
  void go_on(int phase) {
    const int phases = work_->phases();
    for (; phase < phases; ++phase) {
      const auto [chunks, serial] = work_->phase(phase);
      if (!serial && chunks > 1) return open(phase, chunks);
      for (int chunk = 0; chunk < chunks; ++chunk) work_->run(phase, chunk);
      work_->ended(phase);
    }
    signal_.add(1);
  }

  void open(int phase, int chunks) {
    phase_ = phase;
    chunks_ = chunks;
    left_.store(chunks, std::memory_order_relaxed);
    const int shares = shares_.load(std::memory_order_relaxed);
    for (int share = 0; share < shares; ++share) {
      next_[share].next.store(begin_of(share) - begin_of(share + 1), std::memory_order_release);
    }
    signal_.add(2);  // others may have done all of it by now, and more
  }

  // Each thread begins with its own share, so that it mostly meets the rows it wrote in the phase before, and then
  // helps the others. Who has a chunk keeps the phase open, and so all that belongs to it.
  int take_chunks(int thread) {
    int done = 0;
    const int shares = shares_.load(std::memory_order_relaxed);
    for (int turn = 0; turn < shares; ++turn) {
      const int share = (thread + turn) % shares;
      std::atomic<int>& next = next_[share].next;
      while (next.load(std::memory_order_relaxed) < 0) {
        const int left = next.fetch_add(1, std::memory_order_acq_rel);
        if (left >= 0) break;
        work_->run(phase_, begin_of(share + 1) + left);
        ++done;
      }
    }
    return done;
  }

  int begin_of(int share) const {
    const int shares = shares_.load(std::memory_order_relaxed);
    return static_cast<int>(static_cast<long>(chunks_) * share / shares);
  }

  alignas(kAlignment) Signal signal_;  // odd: there is work
  alignas(kAlignment) std::atomic<int> left_{0};
  Share next_[kShares];
  alignas(kAlignment) TeamWork* work_ = nullptr;
  std::atomic<int> shares_{1};
  int phase_ = 0, chunks_ = 0;
};

// How long a thread that waits for the next call keeps its core busy: as long as it takes to wake it up, unless calls
// mostly come later anyway.
class Patience {
 public:
  nanoseconds get() const {
    if (kSet) return *kSet;
    return share_ > kWorthIt ? kLimit : nanoseconds(0);
  }
  void learn(nanoseconds pause) { share_ += ((pause < kLimit ? 1 : 0) - share_) / 8; }

 private:
  static constexpr nanoseconds kLimit = microseconds(200);
  static constexpr double kWorthIt = 0.25;
  static const std::optional<nanoseconds> kSet;

  double share_ = 1;  // of pauses that were shorter than the limit, lately
};

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const std::optional<nanoseconds> Patience::kSet = [] {
  std::optional<nanoseconds> set;
  const std::string_view policy = variable("OMP_WAIT_POLICY"), wait = variable("NGRAPH_WAIT_US");
  if (policy == "passive" || policy == "PASSIVE") set = nanoseconds(0);
  if (policy == "active" || policy == "ACTIVE") set = std::chrono::minutes(5);
  int count = 0;
  if (std::from_chars(wait.data(), wait.data() + wait.size(), count).ptr == wait.data() + wait.size() &&
      !wait.empty()) {
    set = microseconds(std::max(count, 0));
  }
  return set;
}();

// A thread that goes to one meeting at a time. It never ends.
class Worker {
 public:
  // Throws std::system_error.
  Worker() { std::thread(&Worker::loop, this).detach(); }

  // To a meeting, now or when it comes back from another. By one thread at a time.
  void call(Meeting* meeting, int thread, int team) {
    meeting_.store(meeting, std::memory_order_relaxed);
    thread_.store(thread, std::memory_order_relaxed);
    team_.store(team, std::memory_order_relaxed);
    if (asleep()) keep_off(sched_getcpu());
    calls_.add(1);
  }

  bool asleep() const { return calls_.has_sleepers(); }

 private:
  void loop() {
    number_.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
    int place = 0;
    Patience patience;
    for (std::uint32_t seen = 0;;) {
      const auto begin = steady_clock::now();
      // Two processes whose idle workers keep each other's cores get two thirds of what they could.
      calls_.wait_while(seen, patience.get(), true);
      patience.learn(steady_clock::now() - begin);
      seen = calls_.get();
      const int thread = thread_.load(std::memory_order_relaxed);
      bind_to_place(thread, team_.load(std::memory_order_relaxed), &place);
      meeting_.load(std::memory_order_relaxed)->serve(thread);
    }
  }

  // The system likes to wake a thread on the core of who wakes it up, the one that is busy for sure.
  void keep_off(int core) {
    cpu_set_t cores;
    if (core < 0 || core >= CPU_SETSIZE || binds_threads() || sched_getaffinity(0, sizeof cores, &cores) != 0) return;
    CPU_CLR(core, &cores);
    const pid_t thread = number_.load(std::memory_order_relaxed);
    if (thread != 0 && CPU_COUNT(&cores) > 0) sched_setaffinity(thread, sizeof cores, &cores);
  }

  std::atomic<pid_t> number_{0};
  // Members of the latest call. A worker that reads them while they change serves a team as another of its threads, or
  // serves a team that is gone.
  std::atomic<Meeting*> meeting_{nullptr};
  std::atomic<int> thread_{0}, team_{1};
  alignas(kAlignment) Signal calls_;
};

// Meetings and workers that no call has.
class Idle {
 public:
  struct Team {
    Meeting* meeting;
    std::vector<Worker*> workers;
  };

  // With at most so many workers; the system may give no more threads.
  Team take(std::size_t count) {
    Team team;
    team.workers.reserve(count);
    const std::lock_guard<RankedMutex> lock(mutex_);
    if (meetings_.empty()) meetings_.push_back(new Meeting);
    team.meeting = meetings_.back();
    meetings_.pop_back();
    while (team.workers.size() < count) {
      if (!workers_.empty()) {
        team.workers.push_back(workers_.back());
        workers_.pop_back();
      } else if (Worker* const made = make()) {
        team.workers.push_back(made);
      } else {
        break;
      }
    }
    note_next();
    return team;
  }

  // True if the next team's threads are asleep.
  bool asleep() const {
    const Worker* const next = next_.load(std::memory_order_relaxed);
    return next == nullptr || next->asleep();
  }

  // The next team gets them in the same order: each finds in its caches what it left there.
  void give_back(const Team& team) {
    const std::lock_guard<RankedMutex> lock(mutex_);
    meetings_.push_back(team.meeting);
    workers_.insert(workers_.end(), team.workers.rbegin(), team.workers.rend());
    note_next();
  }

 private:
  static Worker* make() {
    try {
      return new Worker;
    } catch (const std::system_error&) {
      return nullptr;
    }
  }

  void note_next() { next_.store(workers_.empty() ? nullptr : workers_.back(), std::memory_order_relaxed); }

  RankedMutex mutex_{Rank::kInnermost};
  std::vector<Meeting*> meetings_;
  std::vector<Worker*> workers_;
  std::atomic<const Worker*> next_{nullptr};  // workers are never destroyed
};

// Never destroyed: threads may outlive static objects.
Idle* idle = new Idle;

// Resets the state of teams in a forked child, which has only the thread that forked.
void after_fork_in_child() {
  idle = new Idle;
  busy_threads.store(0, std::memory_order_relaxed);
  Neighbours::after_fork();
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

void run_alone(TeamWork* work) {
  const int phases = work->phases();
  for (int phase = 0; phase < phases; ++phase) {
    const int chunks = work->phase(phase).chunks;
    for (int chunk = 0; chunk < chunks; ++chunk) work->run(phase, chunk);
    work->ended(phase);
  }
}

class Chunks final : public TeamWork {
 public:
  Chunks(int chunks, const std::function<void(int)>& run) : chunks_(chunks), run_(run) {}
  int phases() const override { return 1; }
  Phase phase(int) const override { return {chunks_, false}; }
  void run(int, int chunk) override { run_(chunk); }

 private:
  int chunks_;
  const std::function<void(int)>& run_;
};

}  // namespace

void Signal::add(std::uint32_t value) {
  word_.fetch_add(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0 && sleepers_.exchange(0, std::memory_order_seq_cst) > 0) {
    futex(&word_, FUTEX_WAKE_PRIVATE, INT32_MAX);
  }
}

void Signal::wait_while(std::uint32_t value, nanoseconds spins, bool yields) {
  constexpr int kSpinsPerLook = 16;  // to look at the clock takes as long as a few
  const auto spin = [&] {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (get() != value) return true;
      _mm_pause();
    }
    return false;
  };
  if (spin()) return;
  const auto begin = steady_clock::now();
  while (steady_clock::now() - begin < spins) {
    if (spin()) return;
    if (yields) sched_yield();
  }
  while (get() == value) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (word_.load(std::memory_order_seq_cst) == value) futex(&word_, FUTEX_WAIT_PRIVATE, value);
  }
}

bool team_sleeps() { return idle->asleep(); }

void run_on_team(int wanted, TeamWork* work) {
  const Lease lease(wanted);
  if (lease.size() == 1) return run_alone(work);
  const Idle::Team team = idle->take(lease.size() - 1);
  const int size = static_cast<int>(team.workers.size()) + 1;
  team.meeting->begin(work, size);
  for (int thread = 1; thread < size; ++thread) team.workers[thread - 1]->call(team.meeting, thread, size);
  thread_local int place = 0;
  bind_to_place(0, size, &place);
  team.meeting->run();
  idle->give_back(team);
}

void run_on_team(int wanted, int chunks, const std::function<void(int)>& run) {
  Chunks work(chunks, run);
  run_on_team(std::min(wanted, chunks), &work);
}

}  // namespace ngraph_mxnet
