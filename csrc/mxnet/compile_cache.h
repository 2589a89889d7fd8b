// The process-wide cache of what MXNet's subgraphs were compiled to.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/executor.h"
#include "core/fork_safety.h"

namespace ngraph_mxnet {

// All that the result of compiling depends on. Where the attributes have a digest of the graph's structure
// (`ngraph_structure`, from the review), it stands for the JSON: models that differ in names share an entry.
struct CompileKey {
  std::string graph_json;
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<int> types;
  std::map<std::string, std::string> attrs;

  // Returns what tells graphs apart: the digest of the graph's structure, or the JSON if there is no digest.
  const std::string& identity() const;
  bool operator==(const CompileKey& other) const;
};

// The cache is bounded: at most so many shapes of each graph, and so many entries in all. The entry that was asked for
// or called longest ago goes first. Of several threads that miss the same key, one compiles and the others wait. No
// lock is held meanwhile: compiling takes the GIL, and whoever holds the GIL may come here.
class CompileCache {
 public:
  using Result = std::shared_ptr<CompiledGraph>;

  // The result of compiling: the graph that was asked for, and `range`, which gives the graph for other sizes. `range`
  // is null if the graph does not hold for a range of sizes.
  struct Compiled {
    Result graph;
    std::shared_ptr<Binder> range = nullptr;
  };

  struct Info {
    std::size_t entries, hits, misses, bound;
  };

  static CompileCache& instance();

  // Call it without the GIL. A failure to compile reaches every waiting thread and is not remembered; after an
  // `Interrupted`, which concerns one thread only, one of those that wait compiles. Where a template that an earlier
  // compilation of the graph gave holds for these shapes, nothing is compiled.
  Result get(CompileKey key, const std::function<Compiled(const CompileKey&)>& compile);

  // At most `shapes` entries for graphs that differ in shapes or types only; at first 16.
  void limit(std::size_t shapes);

  std::size_t shapes();

  Info info();

  // Returns the compiled graphs that the cache holds, with their keys, the latest first.
  std::vector<std::pair<CompileKey, Result>> contents();

  void clear();

 private:
  struct Entry {
    CompileKey key;
    std::uint64_t hash;
    bool pending = true;
    bool interrupted = false;
    std::uint64_t generation = fork_generation();  // an older one's pending entry has no thread that compiles it
    Result result;
    std::string error;
    std::size_t used = 0;  // how many calls of any graph there were when it was asked for or, at least, last called
  };
  using EntryPtr = std::shared_ptr<Entry>;

  // A binder for a range of sizes, with the identity, types and attributes of its graph.
  struct Range {
    std::string identity;
    std::vector<int> types;
    std::map<std::string, std::string> attrs;
    std::shared_ptr<const Binder> range;
  };

  Result bound(const CompileKey& key);
  void add(const CompileKey& key, std::shared_ptr<const Binder> range);
  EntryPtr find(const CompileKey& key, std::uint64_t hash);
  std::list<EntryPtr> evict(const CompileKey& key);

  ForkSafeMutex mutex_{Rank::kCompileCache};
  ForkSafeCondition finished_;
  std::list<EntryPtr> entries_;  // asked for last first
  std::list<Range> ranges_;  // used last first
  std::size_t shapes_ = 16;
  std::size_t hits_ = 0;
  std::size_t misses_ = 0;
  std::size_t bound_ = 0;  // of the misses: how many a template served
};

}  // namespace ngraph_mxnet
