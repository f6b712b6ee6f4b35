#include "collectives/nccl/hierarchy.h"

#include <cstddef>

namespace muster::collectives {
namespace {

constexpr size_t kAlignment = 16;  // bytes

}  // namespace

std::vector<NcclStage> HierarchicalStages(const Operation& all_reduce, const NcclPlace& place) {
  const size_t element = SizeOf(all_reduce.type);
  const size_t unit = kAlignment / element;
  const size_t part = all_reduce.count / place.local_size / unit * unit;
  const size_t divided = part * place.local_size;
  auto* const recv = static_cast<std::byte*>(all_reduce.recv);
  std::vector<NcclStage> stages;
  if (part > 0) {
    Operation own = all_reduce;
    own.count = part;
    own.recv = recv + place.local_rank * part * element;
    own.kind = Operation::Kind::kReduceScatter;
    stages.push_back({NcclLevel::kLocal, own});
    own.send = own.recv;
    own.kind = Operation::Kind::kAllReduce;
    stages.push_back({NcclLevel::kCross, own});
    own.recv = recv;
    own.kind = Operation::Kind::kAllGather;
    stages.push_back({NcclLevel::kLocal, own});
  }
  if (divided < all_reduce.count) {
    Operation rest = all_reduce;
    rest.count -= divided;
    rest.send = static_cast<const std::byte*>(all_reduce.send) + divided * element;
    rest.recv = recv + divided * element;
    stages.push_back({NcclLevel::kWorld, rest});
  }
  return stages;
}

}  // namespace muster::collectives
