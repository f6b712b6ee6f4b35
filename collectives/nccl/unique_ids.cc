#include "collectives/nccl/unique_ids.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "collectives/peer_status.h"
#include "common/status.h"
#include "common/time/deadline.h"

namespace muster::collectives {
namespace {

// Poll interval for interruption while waiting for a key.
constexpr absl::Duration kKeySlice = absl::Milliseconds(200);

// Timeout for reading a key that is expected to exist already, once the deadline has passed.
constexpr absl::Duration kCheckTimeout = absl::Milliseconds(100);
constexpr uint32_t kGatherThreads = 8;

absl::StatusOr<std::string> Receive(const GroupOptions& options, const std::string& key,
                                    const Deadline& deadline,
                                    const std::function<absl::Status()>& interrupted) {
  for (;;) {
    RETURN_IF_ERROR(interrupted());
    const absl::Duration left = deadline.left();
    absl::StatusOr<std::string> value = options.store->Get(key, std::min(left, kKeySlice));
    if (!absl::IsDeadlineExceeded(value.status()) || left == absl::ZeroDuration()) return value;
  }
}

absl::Status RootMissing(const GroupOptions& options, uint32_t root, uint32_t roots) {
  const uint32_t maker = options.members[NcclRootRank(root, roots, options.size)];
  return PeersMissing(options.name, {maker}, options.connect_timeout);
}

// Root 0 waits for the other roots, and all ranks wait for root 0: names the first root that has
// published nothing.
absl::Status FirstMissingRoot(const GroupOptions& options, uint32_t roots) {
  for (uint32_t root = 1; root < roots; ++root) {
    const absl::Status put =
        options.store->Get(NcclRootIdKey(options.id, root), kCheckTimeout).status();
    if (absl::IsDeadlineExceeded(put)) return RootMissing(options, root, roots);
    RETURN_IF_ERROR(put);
  }
  return RootMissing(options, 0, roots);
}

absl::Status InvalidId(const GroupOptions& options, const std::string& key) {
  return absl::DataLossError(
      absl::StrCat(options.name, ": ", key, " does not hold a valid NCCL unique id"));
}

// Receives the other roots' ids into `ids`; run by root 0. Uses several threads, since each read is
// a round trip to the coordinator.
absl::Status Gather(const GroupOptions& options, const Deadline& deadline,
                    const std::function<absl::Status()>& interrupted,
                    std::vector<NcclUniqueId>& ids) {
  absl::Mutex mutex;
  absl::Status failure;
  const auto over = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex);
    if (failure.ok()) failure = interrupted();
    return failure;
  };
  const auto receive = [&](uint32_t root) -> absl::Status {
    const std::string key = NcclRootIdKey(options.id, root);
    absl::StatusOr<std::string> id = Receive(options, key, deadline, over);
    if (absl::IsDeadlineExceeded(id.status())) return RootMissing(options, root, ids.size());
    RETURN_IF_ERROR(id.status());
    if (id->size() != sizeof(NcclUniqueId)) return InvalidId(options, key);
    std::memcpy(ids[root].internal, id->data(), id->size());
    return absl::OkStatus();
  };
  const auto roots = static_cast<uint32_t>(ids.size());
  std::vector<std::thread> threads;
  for (uint32_t first = 1; first < roots && first <= kGatherThreads; ++first) {
    threads.emplace_back([&, first] {
      for (uint32_t root = first; root < roots; root += kGatherThreads) {
        const absl::Status status = receive(root);
        if (status.ok()) continue;
        absl::MutexLock lock(&mutex);
        if (failure.ok()) failure = status;
        return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace

uint32_t NcclRootCount(uint32_t size, const NcclLibrary& library) {
  if (library.init_rank_scalable == nullptr) return 1;
  return (size + kRanksPerNcclRoot - 1) / kRanksPerNcclRoot;
}

// Roots serve consecutive ranks; if the ranks do not divide evenly, the first roots serve one more.
uint32_t NcclRootRank(uint32_t root, uint32_t roots, uint32_t size) {
  return root * (size / roots) + std::min(root, size % roots);
}

std::string NcclIdsKey(absl::string_view group_id) {
  return absl::StrCat("nccl/", group_id, "/unique-ids");
}

std::string NcclRootIdKey(absl::string_view group_id, uint32_t root) {
  return absl::StrCat("nccl/", group_id, "/unique-id/", root);
}

absl::StatusOr<std::vector<NcclUniqueId>> ExchangeNcclUniqueIds(
    const GroupOptions& options, const NcclLibrary& library, const Deadline& deadline,
    const std::function<absl::Status()>& interrupted) {
  const uint32_t roots = NcclRootCount(options.size, library);
  std::vector<NcclUniqueId> ids(roots);
  for (uint32_t root = 0; root < roots; ++root) {
    if (NcclRootRank(root, roots, options.size) != options.rank) continue;
    NcclUniqueId& id = ids[root];
    RETURN_IF_ERROR(library.StatusOf(library.make_unique_id(&id), "ncclGetUniqueId", nullptr));
    if (options.size == 1) return ids;
    if (root > 0) {
      RETURN_IF_ERROR(
          options.store->Put(NcclRootIdKey(options.id, root), {id.internal, sizeof(id.internal)}));
    }
  }
  const std::string key = NcclIdsKey(options.id);
  const size_t bytes = roots * sizeof(NcclUniqueId);
  if (options.rank == 0) {
    RETURN_IF_ERROR(Gather(options, deadline, interrupted, ids));
    RETURN_IF_ERROR(options.store->Put(key, {ids.front().internal, bytes}));
    return ids;
  }
  absl::StatusOr<std::string> all = Receive(options, key, deadline, interrupted);
  if (absl::IsDeadlineExceeded(all.status())) return FirstMissingRoot(options, roots);
  RETURN_IF_ERROR(all.status());
  if (all->size() != bytes) return InvalidId(options, key);
  std::memcpy(ids.data(), all->data(), bytes);
  return ids;
}

}  // namespace muster::collectives
