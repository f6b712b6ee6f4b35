// Measures the preflight time of the last node of a large job, which connects to all others.
//   bazel run -c opt //trainer/rank:preflight_bench -- [NODES=1250] [ROUNDS=5]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "trainer/rank/preflight.h"

namespace {

using namespace muster;

// A store with the addresses of all nodes.
class FilledStore final : public collectives::KeyStore {
 public:
  absl::Status Put(absl::string_view key, absl::string_view value) override {
    values_[std::string(key)] = std::string(value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration) override {
    ++gets_;
    const auto value = values_.find(std::string(key));
    if (value == values_.end()) return absl::DeadlineExceededError(absl::StrCat("no ", key));
    bytes_ += value->second.size();
    return value->second;
  }
  int gets() const { return gets_; }
  size_t bytes() const { return bytes_; }

 private:
  std::map<std::string, std::string> values_;
  int gets_ = 0;
  size_t bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const uint32_t nodes = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 1250;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  FilledStore store;
  std::vector<std::unique_ptr<rank::ReachListener>> listeners;
  std::map<uint32_t, std::string> blocks;
  for (uint32_t node = 0; node + 1 < nodes; ++node) {
    const std::string word = absl::StrFormat("%032d\n", node);
    auto listener = rank::ReachListener::Start("127.0.0.1", word);
    if (!listener.ok()) {
      std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
      return 1;
    }
    listeners.push_back(*std::move(listener));
    absl::StrAppend(&blocks[node / 128 * 128], "node-", node, " 127.0.0.1 ",
                    listeners.back()->port(), " ", word);
  }
  for (const auto& [first, block] : blocks) {
    if (!store.Put(absl::StrCat("preflight/block/", first), block).ok()) return 1;
  }
  rank::PreflightOptions last;
  last.node_rank = nodes - 1;
  last.node_count = nodes;
  last.node_name = "last";
  last.address = "127.0.0.1";
  std::vector<double> milliseconds;
  for (int round = 0; round < rounds; ++round) {
    const absl::Time begin = absl::Now();
    const auto checked = rank::CheckNodes(last, &store);
    milliseconds.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
    if (!checked.ok()) {
      std::fprintf(stderr, "%s\n", checked.status().ToString().c_str());
      return 1;
    }
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("%u nodes: %.1f ms on the last node (median of %d), which read %d keys, %zu bytes\n",
              nodes, milliseconds[milliseconds.size() / 2], rounds, store.gets() / rounds,
              store.bytes() / static_cast<size_t>(rounds));
  return 0;
}
