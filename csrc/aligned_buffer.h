// A zeroed block of memory aligned for the widest vector load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace ngraph_mxnet {

constexpr std::size_t kAlignment = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  explicit AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
    // Never null, and a kernel's last vector may be read whole.
    const std::size_t wanted = bytes + kAlignment;
    if (wanted < kHugePage) {
      rounded_ = (wanted + kAlignment - 1) / kAlignment * kAlignment;
      data_ = static_cast<char*>(std::aligned_alloc(kAlignment, rounded_));
      if (data_ == nullptr) throw std::bad_alloc();
      std::memset(data_, 0, rounded_);
    } else {
      rounded_ = (wanted + kHugePage - 1) / kHugePage * kHugePage;
      data_ = map_huge(rounded_);
    }
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() {
    if (rounded_ < kHugePage) {
      std::free(data_);
    } else {
      munmap(data_, rounded_);
    }
  }

  char* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Zero pages of the kernel's, aligned to huge ones: the team touches them first, in parallel.
  static char* map_huge(std::size_t bytes) {
    void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    char* begin = static_cast<char*>(mapped);
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    if (before > 0) munmap(begin, before);
    if (before < kHugePage) munmap(begin + before + bytes, kHugePage - before);
    madvise(begin + before, bytes, MADV_HUGEPAGE);  // only a hint: fewer faults and TLB misses
    return begin + before;
  }

  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(rounded_, other.rounded_);
  }

  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t rounded_ = 0;
};

}  // namespace ngraph_mxnet
