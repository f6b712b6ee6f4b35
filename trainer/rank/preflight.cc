#include "trainer/rank/preflight.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/network/network.h"
#include "common/random_id.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"

namespace muster::rank {
namespace {

// Nodes per block: their names and addresses fit into one value of the store (limits::kValueBytes).
constexpr uint32_t kBlock = 128;
constexpr char kBarrier[] = "preflight";
// Minimum duration of the check, unless failure_timeout is shorter.
constexpr absl::Duration kMinLimit = absl::Seconds(15);

struct Entry {
  std::string node;
  ReachTarget target;
};

std::string Encode(const Entry& entry) {
  // The token ends with a newline.
  return absl::StrCat(entry.node, " ", entry.target.address.host, " ", entry.target.address.port,
                      " ", entry.target.word);
}

absl::StatusOr<Entry> Decode(absl::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  uint32_t port = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[2], &port) || port > 65535) {
    return absl::InternalError(absl::StrCat("malformed node address: ", line));
  }
  return Entry{words[0], {{words[1], static_cast<uint16_t>(port)}, absl::StrCat(words[3], "\n")}};
}

std::string NodeKey(uint32_t node_rank) { return absl::StrCat("preflight/node/", node_rank); }
std::string BlockKey(uint32_t first) { return absl::StrCat("preflight/block/", first); }

// Exchanges the nodes' addresses through the store.
class Directory {
 public:
  Directory(const PreflightOptions& options, const Deadline& deadline, collectives::KeyStore* store)
      : options_(options), deadline_(deadline), store_(store) {}

  absl::Status Publish(const std::string& own) {
    const uint32_t first = options_.node_rank / kBlock * kBlock;
    if (options_.node_rank != first) return store_->Put(NodeKey(options_.node_rank), own);
    const uint32_t end = std::min(first + kBlock, options_.node_count);
    std::string block = own;
    for (uint32_t node = first + 1; node < end; ++node) {
      ASSIGN_OR_RETURN(const std::string entry, Get(NodeKey(node), node));
      block += entry;
    }
    return store_->Put(BlockKey(first), block);
  }

  absl::StatusOr<std::vector<Entry>> LowerNodes() {
    std::vector<Entry> entries;
    for (uint32_t first = 0; first < options_.node_rank; first += kBlock) {
      ASSIGN_OR_RETURN(const std::string block, Get(BlockKey(first), first));
      for (const absl::string_view line : absl::StrSplit(block, '\n', absl::SkipEmpty())) {
        if (entries.size() == options_.node_rank) break;
        ASSIGN_OR_RETURN(entries.emplace_back(), Decode(line));
      }
    }
    if (entries.size() != options_.node_rank) {
      return absl::InternalError(absl::StrCat("expected the addresses of ", options_.node_rank,
                                              " nodes, got ", entries.size()));
    }
    return entries;
  }

 private:
  absl::StatusOr<std::string> Get(const std::string& key, uint32_t node_rank) {
    auto value = store_->Get(key, deadline_.left());
    if (!absl::IsDeadlineExceeded(value.status())) return value;
    return absl::DeadlineExceededError(absl::StrCat("node rank ", node_rank,
                                                    " did not publish its address within ",
                                                    absl::FormatDuration(options_.timeout)));
  }

  const PreflightOptions& options_;
  const Deadline deadline_;
  collectives::KeyStore* const store_;
};

std::string InterfaceText(const std::string& address) {
  const std::string interface = InterfaceOf(address);
  return interface.empty() ? "" : absl::StrCat(" (interface ", interface, ")");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReachListener>> CheckNodes(const PreflightOptions& options,
                                                          collectives::KeyStore* store) {
  const SteadyTime begin = SteadyNow();
  const Deadline deadline(options.timeout);
  Entry own = {options.node_name, {{options.address, 0}, absl::StrCat(RandomHexId(128), "\n")}};
  ASSIGN_OR_RETURN(auto listener, ReachListener::Start(options.address, own.target.word));
  own.target.address.port = listener->port();
  Directory directory(options, deadline, store);
  RETURN_IF_ERROR(directory.Publish(Encode(own)));
  ASSIGN_OR_RETURN(const std::vector<Entry> lower, directory.LowerNodes());

  std::vector<ReachTarget> targets;
  for (const Entry& entry : lower) targets.push_back(entry.target);
  const ReachResult result =
      ReachAll(targets, {.timeout = deadline.left(), .cancelled = options.cancelled});
  if (absl::IsCancelled(result.status)) return result.status;
  if (!result.status.ok()) {
    const Entry& other = lower[result.target];
    return absl::UnavailableError(absl::StrCat("node ", options.node_name, " cannot reach node ",
                                               other.node, " at ", other.target.address.ToString(),
                                               InterfaceText(options.address), ": ",
                                               result.status.message()));
  }
  LOG(INFO) << "network check passed in "
            << absl::FormatDuration(absl::Trunc(SteadyNow() - begin, absl::Microseconds(10)))
            << ": node " << options.node_rank + 1 << " of " << options.node_count
            << (lower.empty() ? ", to which the others connect"
                              : ", which reached every node before it");
  return listener;
}

absl::Status Preflight(const v1::World& world, const RankEnvironment& environment,
                       const std::function<bool()>& cancelled, ControlPlane* control) {
  if (world.node_count() <= 1) return absl::OkStatus();
  const absl::Duration timeout = FromProto(world.failure_timeout());
  // Ends before the coordinator's rendezvous timeout.
  const absl::Duration limit = std::min(timeout, std::max(timeout / 2, kMinLimit));
  std::unique_ptr<ReachListener> listener;
  const bool first = !world.ranks().empty() && world.ranks(0).rank() == environment.identity.rank();
  if (first) {
    PreflightOptions options;
    options.node_rank = world.node_rank();
    options.node_count = world.node_count();
    options.node_name = environment.node_name;
    options.address = world.node_address();
    options.timeout = limit;
    options.cancelled = cancelled;
    ASSIGN_OR_RETURN(listener, CheckNodes(options, control));
  }
  // The barrier's timeout is longer, so that a failed check is reported before other ranks time
  // out.
  return control->Barrier(kBarrier, limit + timeout);
}

}  // namespace muster::rank
