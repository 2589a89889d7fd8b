#include "kept_weights.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "content_hash.h"
#include "team.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

struct Header {
  char format[32];
  std::uint64_t bytes, checksum;
};
constexpr char kFormat[sizeof(Header::format)] = "ngraph_mxnet prepared weights 1";

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

  bool write_all(const char* data, std::size_t bytes) const {
    while (bytes > 0) {
      const ssize_t written = write(descriptor_, data, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      data += written;
      bytes -= static_cast<std::size_t>(written);
    }
    return true;
  }

 private:
  int descriptor_;
};

std::string hex(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace

// Two hashes of all: one of 64 bits alone is short for a name that stands for content.
std::string KeptWeights::path(const std::vector<std::uint64_t>& hashes) const {
  std::vector<std::uint64_t> salted(hashes);
  salted.push_back(bytes_);
  const std::size_t size = salted.size() * sizeof(std::uint64_t);
  const std::uint64_t first = content_hash(salted.data(), size);
  salted.push_back(first);
  return prefix_ + hex(first) + hex(content_hash(salted.data(), size + sizeof(std::uint64_t)));
}

std::uint64_t KeptWeights::checksum(const char* data) const {
  std::vector<std::uint64_t> chunks((bytes_ + kChunk - 1) / kChunk);
  std::atomic<std::size_t> next{0};
  run_on_team(threads_, [&](int, int) {
    for (std::size_t i; (i = next.fetch_add(1)) < chunks.size();) {
      const std::size_t begin = i * kChunk;
      chunks[i] = content_hash(data + begin, std::min(kChunk, bytes_ - begin));
    }
  });
  return content_hash(chunks.data(), chunks.size() * sizeof(std::uint64_t));
}

std::shared_ptr<const AlignedBuffer> KeptWeights::load(const std::vector<std::uint64_t>& hashes) const {
  const std::string name = path(hashes);
  const File file(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return nullptr;
  struct stat status;
  Header header;
  if (fstat(file.descriptor(), &status) == 0 &&
      static_cast<std::size_t>(status.st_size) == AlignedBuffer::kPage + AlignedBuffer::rounded(bytes_) &&
      pread(file.descriptor(), &header, sizeof header, 0) == sizeof header &&
      std::memcmp(header.format, kFormat, sizeof kFormat) == 0 && header.bytes == bytes_) {
    try {
      auto mapped = std::make_shared<const AlignedBuffer>(bytes_, file.descriptor());
      if (checksum(mapped->data()) == header.checksum) {
        futimens(file.descriptor(), nullptr);  // its last use
        return mapped;
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  std::cerr << "ngraph_mxnet: " << name << " is damaged: the weights are prepared anew" << std::endl;
  unlink(name.c_str());
  return nullptr;
}

bool KeptWeights::save(const std::vector<std::uint64_t>& hashes, const AlignedBuffer& prepared) const {
  const std::string name = path(hashes);
  std::string temporary = name + "XXXXXX.tmp";
  const File file(mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!file.is_open()) return false;
  std::vector<char> page(AlignedBuffer::kPage);
  Header header{};
  std::memcpy(header.format, kFormat, sizeof kFormat);
  header.bytes = bytes_;
  header.checksum = checksum(prepared.data());
  std::memcpy(page.data(), &header, sizeof header);
  if (file.write_all(page.data(), page.size()) &&
      file.write_all(prepared.data(), AlignedBuffer::rounded(bytes_)) && rename(temporary.c_str(), name.c_str()) == 0) {
    return true;
  }
  unlink(temporary.c_str());
  return false;
}

}  // namespace ngraph_mxnet
