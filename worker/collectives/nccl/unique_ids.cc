#include "worker/collectives/nccl/unique_ids.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "worker/collectives/peer_status.h"

namespace muster::collectives {
namespace {

// An interrupted wait for a key ends within this.
constexpr absl::Duration kKeySlice = absl::Milliseconds(200);

std::string IdKey(const GroupOptions& options, uint32_t root) {
  return absl::StrCat("nccl/", options.id, "/unique-id/", root);
}

absl::StatusOr<std::string> Receive(const GroupOptions& options, uint32_t root, uint32_t roots,
                                    absl::Time deadline,
                                    const std::function<absl::Status()>& interrupted) {
  for (;;) {
    RETURN_IF_ERROR(interrupted());
    const absl::Duration left = deadline - absl::Now();
    absl::StatusOr<std::string> text =
        options.store->Get(IdKey(options, root), std::clamp(left, absl::ZeroDuration(), kKeySlice));
    if (!absl::IsDeadlineExceeded(text.status())) return text;
    if (left > absl::ZeroDuration()) continue;
    const uint32_t maker = options.members[NcclRootRank(root, roots, options.size)];
    return PeersMissing(options.name, {maker}, options.connect_timeout);
  }
}

}  // namespace

uint32_t NcclRootCount(uint32_t size, const NcclLibrary& library) {
  if (library.init_rank_scalable == nullptr) return 1;
  return (size + kRanksPerNcclRoot - 1) / kRanksPerNcclRoot;
}

// The ranks are dealt out in runs, the first ones a rank longer where they do not divide.
uint32_t NcclRootRank(uint32_t root, uint32_t roots, uint32_t size) {
  return root * (size / roots) + std::min(root, size % roots);
}

absl::StatusOr<std::vector<NcclUniqueId>> ExchangeNcclUniqueIds(
    const GroupOptions& options, const NcclLibrary& library, absl::Time deadline,
    const std::function<absl::Status()>& interrupted) {
  const uint32_t roots = NcclRootCount(options.size, library);
  std::vector<NcclUniqueId> ids(roots);
  // All make theirs before any waits.
  for (uint32_t root = 0; root < roots; ++root) {
    if (NcclRootRank(root, roots, options.size) != options.rank) continue;
    RETURN_IF_ERROR(
        library.StatusOf(library.make_unique_id(&ids[root]), "ncclGetUniqueId", nullptr));
    if (options.size == 1) return ids;
    const absl::string_view bytes(ids[root].internal, sizeof(ids[root].internal));
    RETURN_IF_ERROR(options.store->Put(IdKey(options, root), absl::BytesToHexString(bytes)));
  }
  for (uint32_t root = 0; root < roots; ++root) {
    if (NcclRootRank(root, roots, options.size) == options.rank) continue;
    ASSIGN_OR_RETURN(const std::string text, Receive(options, root, roots, deadline, interrupted));
    const std::string bytes = absl::HexStringToBytes(text);
    if (bytes.size() != sizeof(ids[root].internal)) {
      return absl::DataLossError(
          absl::StrCat(options.name, ": ", IdKey(options, root), " is no unique id of NCCL's"));
    }
    std::memcpy(ids[root].internal, bytes.data(), bytes.size());
  }
  return ids;
}

}  // namespace muster::collectives
