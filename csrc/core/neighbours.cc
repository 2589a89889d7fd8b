#include "core/neighbours.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

#include "core/places.h"

namespace ngraph_mxnet {
namespace {

// Ticks, at two to four a nanosecond: how long a computation counts that is not told to be over, and after what time a slot
// is given to another process.
constexpr std::uint64_t kLongest = 4'000'000'000, kAbandoned = 40'000'000'000;
constexpr std::uint64_t kMostThreads = 4096;

// Never destroyed: threads may outlive static objects.
std::atomic<Neighbours*> latest{nullptr};

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

}  // namespace

Neighbours::Neighbours(const std::string& path) : table_(static_cast<Table*>(mapped(path, sizeof(Table)))) {}

Neighbours* Neighbours::instance() {
  Neighbours* instance = latest.load(std::memory_order_acquire);
  if (instance != nullptr) return instance->table_ == nullptr ? nullptr : instance;
  const char* const share = std::getenv("NGRAPH_SHARE_CORES");
  const bool alone = (share != nullptr && std::string_view(share) == "0") || binds_threads();
  auto* const made = new Neighbours(alone ? "" : "/dev/shm/ngraph_mxnet-1-" + std::to_string(geteuid()));
  // No lock, which a fork could leave locked for ever. Of two that are made at once, one is not used.
  latest.compare_exchange_strong(instance, made, std::memory_order_acq_rel);
  return Neighbours::instance();
}

void Neighbours::after_fork() {
  Neighbours* const instance = latest.load(std::memory_order_acquire);
  if (instance == nullptr) return;
  instance->slot_.store(nullptr, std::memory_order_relaxed);
  instance->owner_.store(0, std::memory_order_relaxed);
}

Neighbours::Busy Neighbours::busy(std::uint64_t cores) const {
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

void Neighbours::begin(std::uint64_t cores, int threads) {
  Slot* const own = slot();
  if (own == nullptr) return;
  own->cores.store(cores, std::memory_order_relaxed);
  own->threads.store(threads, std::memory_order_relaxed);
  own->until.store(ticks() + kLongest, std::memory_order_relaxed);
}

void Neighbours::end(int threads, std::uint64_t ticks) {
  Slot* const own = slot();
  if (own == nullptr) return;
  own->threads.store(threads, std::memory_order_relaxed);
  own->until.store(Neighbours::ticks() + std::min(ticks, kLongest), std::memory_order_relaxed);
}

Neighbours::Slot* Neighbours::slot() {
  Slot* const known = slot_.load(std::memory_order_acquire);
  if (known != nullptr && known->owner.load(std::memory_order_relaxed) == owner_.load(std::memory_order_relaxed)) return known;
  const std::uint64_t time = ticks(), id = (static_cast<std::uint64_t>(getpid()) << 32) | (time & 0xffffffff);
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    Slot& slot = table_->slots[i];
    std::uint64_t owner = slot.owner.load(std::memory_order_relaxed);
    const std::uint64_t until = slot.until.load(std::memory_order_relaxed);
    const bool abandoned = until + kAbandoned < time || until > time + kLongest;  // or written before the machine started
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

std::uint64_t Neighbours::core_set() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&cores);
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (std::size_t i = 0; i < sizeof cores; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

std::uint64_t Neighbours::ticks() { return __rdtsc(); }

}  // namespace ngraph_mxnet
