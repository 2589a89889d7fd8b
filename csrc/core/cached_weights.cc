#include "core/cached_weights.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/team.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kSealBytes = 32;
constexpr std::size_t kNameBytes = 16;  // of a seal

struct Header {
  char format[32];
  std::uint64_t bytes;
  char seal[kSealBytes];
};
constexpr char kFormat[sizeof(Header::format)] = "ngraph_mxnet prepared weights 3";

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }

  // True if this is a regular file of `bytes` bytes that only this user can have written.
  bool is_own(std::size_t bytes) const {
    struct stat status;
    return fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 && static_cast<std::size_t>(status.st_size) == bytes;
  }

  bool read_all(char* data, std::size_t bytes) const {
    while (bytes > 0) {
      const ssize_t got = read(descriptor_, data, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      data += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }

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

  bool make_read_only() const { return fchmod(descriptor_, S_IRUSR) == 0; }

  void mark_used() const { futimens(descriptor_, nullptr); }

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

template <class T>
std::string bytes_of(const T* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

}  // namespace

CachedWeights::CachedWeights(CachedWeightsOption option, std::size_t bytes, std::vector<std::size_t> inputs,
                         std::vector<std::size_t> sizes, int threads)
    : option_(std::move(option)),
      hasher_(option_.key),
      bytes_(bytes),
      inputs_(std::move(inputs)),
      sizes_(std::move(sizes)),
      threads_(threads) {}

CachedWeights::Buffer CachedWeights::get_or_make(const std::vector<const char*>& inputs,
                                                 const std::vector<Hash128>& hashes,
                                                 const std::function<Buffer()>& prepare) const {
  std::string name;
  try {
    name = path(hashes);
    if (Buffer found = load(name)) return found;
  } catch (const std::exception&) {  // the interpreter is going, or there is no memory: as without files
    return prepare();
  }
  Buffer prepared = prepare();
  try {
    if (hashes_of(inputs) == hashes && save(name, *prepared)) option_.on_save();
  } catch (const std::exception&) {  // the weights are there
  }
  return prepared;
}

std::vector<Hash128> CachedWeights::hashes_of(const std::vector<const char*>& inputs) const {
  std::vector<Hash128> hashes(inputs_.size());
  run_on_team(threads_, hashes.size(), [&](int i) { hashes[i] = hasher_(inputs[inputs_[i]], sizes_[i]); });
  return hashes;
}

std::string CachedWeights::path(const std::vector<Hash128>& hashes) const {
  const std::string text = "weights" + bytes_of(&bytes_, 1) + bytes_of(hashes.data(), hashes.size());
  return option_.prefix + hex(option_.seal(text).substr(0, kNameBytes));
}

std::string CachedWeights::seal_of(const std::string& path, const AlignedBuffer& prepared) const {
  std::vector<Hash128> hashes((bytes_ + kChunk - 1) / kChunk);
  run_on_team(threads_, hashes.size(), [&](int i) {
    const std::size_t begin = i * kChunk;
    hashes[i] = hasher_(prepared.data() + begin, std::min(kChunk, bytes_ - begin));
  });
  const std::string text = "content" + path.substr(path.rfind('/') + 1) + bytes_of(&bytes_, 1);
  return option_.seal(text + bytes_of(hashes.data(), hashes.size()));
}

CachedWeights::Buffer CachedWeights::load(const std::string& path) const {
  // A pipe would block without O_NONBLOCK.
  const File file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return nullptr;
  Header header;
  if (file.is_own(AlignedBuffer::kPage + AlignedBuffer::rounded(bytes_)) &&
      file.read_all(reinterpret_cast<char*>(&header), sizeof header) &&
      std::memcmp(header.format, kFormat, sizeof kFormat) == 0 && header.bytes == bytes_) {
    const Buffer buffer =
        std::make_shared<AlignedBuffer>(AlignedBuffer::of_file(file.descriptor(), AlignedBuffer::kPage, bytes_));
    run_on_team(threads_, threads_, [&](int share) { buffer->populate(share, threads_); });
    if (seal_of(path, *buffer) == std::string(header.seal, kSealBytes)) {
      file.mark_used();
      return buffer;
    }
  }
  std::cerr << "ngraph_mxnet: " << path
            << " is damaged, or was not written by this cache: the weights are prepared anew" << std::endl;
  unlink(path.c_str());
  return nullptr;
}

bool CachedWeights::save(const std::string& path, const AlignedBuffer& prepared) const {
  Header header{};
  std::memcpy(header.format, kFormat, sizeof kFormat);
  header.bytes = bytes_;
  const std::string seal = seal_of(path, prepared);
  if (seal.size() != kSealBytes) return false;
  std::memcpy(header.seal, seal.data(), kSealBytes);
  std::vector<char> page(AlignedBuffer::kPage);
  std::memcpy(page.data(), &header, sizeof header);

  std::string temporary = path + "XXXXXX.tmp";
  const File file(mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!file.is_open()) return false;
  if (file.write_all(page.data(), page.size()) && file.write_all(prepared.data(), AlignedBuffer::rounded(bytes_)) &&
      file.make_read_only() && rename(temporary.c_str(), path.c_str()) == 0) {
    return true;
  }
  unlink(temporary.c_str());
  return false;
}

}  // namespace ngraph_mxnet
