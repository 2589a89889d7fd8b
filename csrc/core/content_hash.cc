#include "core/content_hash.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include <sys/random.h>

namespace ngraph_mxnet {
namespace {

std::uint64_t word_at(const char* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

constexpr std::size_t kPair = 2 * sizeof(std::uint64_t);

// Sums of products that two keys make of a block, modulo 2^128.
struct Sums {
  Wide first = 0, second = 0;

  void add(const char* pair, const std::uint64_t* key) {
    const std::uint64_t a = word_at(pair), b = word_at(pair + sizeof a);
    first += Wide{a + key[0]} * (b + key[1]);
    second += Wide{a + key[2]} * (b + key[3]);
  }
};

// A last pair that is not whole is filled with zeros: the length tells it from one that ends in zeros.
Sums block_sums(const char* data, std::size_t bytes, const std::uint64_t* key) {
  Sums sums;
#pragma GCC unroll 8
  for (; bytes >= kPair; data += kPair, bytes -= kPair, key += 2) sums.add(data, key);
  if (bytes > 0) {
    char tail[kPair] = {};
    std::memcpy(tail, data, bytes);
    sums.add(tail, key);
  }
  return sums;
}

ContentHasher::Key random_key() {
  ContentHasher::Key key;
  auto* const bytes = reinterpret_cast<char*>(key.data());
  for (std::size_t have = 0; have < sizeof key;) {
    const ssize_t got = getrandom(bytes + have, sizeof key - have, 0);
    if (got > 0) {
      have += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      throw std::runtime_error(std::string("the system gives no random numbers: getrandom: ") + std::strerror(errno));
    }
  }
  return key;
}

}  // namespace

ContentHasher::ContentHasher(const Key& key) : key_(key) {}

const ContentHasher& ContentHasher::of_process() {
  static const ContentHasher hasher(random_key());
  return hasher;
}

Hash128 ContentHasher::operator()(const void* data, std::size_t bytes) const {
  constexpr std::size_t kBlockBytes = kBlockWords * sizeof(std::uint64_t);
  const std::uint64_t* const factors = key_.data() + kBlockWords + 2;
  const Wide first_factor = reduce(wide(factors)), second_factor = reduce(wide(factors + 2));
  Wide first = 1, second = 1;
  const char* p = static_cast<const char*>(data);
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t size = left < kBlockBytes ? left : kBlockBytes;
    const Sums sums = block_sums(p, size, key_.data());
    first = reduce(multiply(first, first_factor) + reduce(sums.first));
    second = reduce(multiply(second, second_factor) + reduce(sums.second));
    p += size;
    left -= size;
  }
  first = reduce(multiply(first, first_factor) + bytes);
  second = reduce(multiply(second, second_factor) + bytes);
  const Wide hash = reduce(multiply(first, reduce(wide(factors + 4))) + second);
  return {static_cast<std::uint64_t>(hash), static_cast<std::uint64_t>(hash >> 64)};
}

}  // namespace ngraph_mxnet
