// A block of memory aligned for the widest vector load: zeroed memory, or a part of a file.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace ngraph_mxnet {

constexpr std::size_t kAlignment = 64;

class AlignedBuffer {
 public:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kMapped = std::size_t{1} << 20;  // from so many bytes on it has pages of its own

  // Returns how many bytes a buffer of `bytes` occupies. They include room for a kernel's last vector, which may be
  // read whole.
  static constexpr std::size_t rounded(std::size_t bytes) { return bytes + kAlignment; }

  AlignedBuffer() = default;

  explicit AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
    const std::size_t wanted = rounded(bytes);  // never null
    if (wanted < kMapped) {
      rounded_ = (wanted + kAlignment - 1) / kAlignment * kAlignment;
      data_ = static_cast<char*>(std::aligned_alloc(kAlignment, rounded_));
      if (data_ == nullptr) throw std::bad_alloc();
      std::memset(data_, 0, rounded_);
    } else {
      // Zero pages of the kernel's, which populate() or the first touch brings in. Huge ones gain nothing here
      // once they are there, and on a virtual machine take several times longer to get.
      rounded_ = wanted;
      void* mapped = mmap(nullptr, rounded_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) throw std::bad_alloc();
      data_ = static_cast<char*>(mapped);
    }
  }

  // Maps what a file holds from `offset`, a multiple of kPage, on. The file goes on for rounded(bytes), which are at
  // least kMapped. Nobody may write to the buffer, and nobody to the file. Throws std::bad_alloc if it can't be mapped.
  static AlignedBuffer of_file(int descriptor, std::size_t offset, std::size_t bytes) {
    AlignedBuffer buffer;
    void* mapped = mmap(nullptr, rounded(bytes), PROT_READ, MAP_PRIVATE, descriptor, static_cast<off_t>(offset));
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    buffer.data_ = static_cast<char*>(mapped);
    buffer.bytes_ = bytes;
    buffer.rounded_ = rounded(bytes);
    buffer.populate_ = kPopulateRead;
    return buffer;
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() {
    if (rounded_ < kMapped) {
      std::free(data_);
    } else {
      munmap(data_, rounded_);
    }
  }

  // Makes it `bytes` large if it is smaller; what was in it stays, what is new is zero. Pages that it has are not got
  // anew, which takes a system longer than to compute with them.
  void grow(std::size_t bytes) {
    const std::size_t wanted = rounded(bytes);
    if (wanted > rounded_) {
      if (rounded_ >= kMapped) {
        void* mapped = mremap(data_, rounded_, wanted, MREMAP_MAYMOVE);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<char*>(mapped);
        rounded_ = wanted;
      } else {
        AlignedBuffer larger(bytes);
        if (data_ != nullptr) std::memcpy(larger.data_, data_, rounded_);
        swap(larger);
      }
    }
    bytes_ = bytes;
  }

  // Brings in the pages of share `share` of `shares` at once: a fault for each costs a third more. What the
  // system does not do (Linux before 5.14) is left to the first touch.
  void populate(int share, int shares) const {
    if (rounded_ < kMapped) return;
    const std::size_t pages = (rounded_ + kPage - 1) / kPage;
    const std::size_t begin = pages * share / shares, end = pages * (share + 1) / shares;
    madvise(data_ + begin * kPage, (end - begin) * kPage, populate_);
  }

  char* data() const { return data_; }
  std::size_t size() const { return bytes_; }

  // Returns how many bytes the buffer occupies. Earlier uses may have written to more of them than `size()`.
  std::size_t capacity() const { return rounded_; }

 private:
  // MADV_POPULATE_READ and MADV_POPULATE_WRITE, which headers before Linux 5.14 lack
  static constexpr int kPopulateRead = 22, kPopulateWrite = 23;

  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(rounded_, other.rounded_);
    std::swap(populate_, other.populate_);
  }

  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t rounded_ = 0;
  int populate_ = kPopulateWrite;
};

}  // namespace ngraph_mxnet
