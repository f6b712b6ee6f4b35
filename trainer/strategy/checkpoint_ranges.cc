#include "trainer/strategy/checkpoint_ranges.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/status.h"
#include "kernels/aligned_floats.h"

namespace muster::train {
namespace {

using collectives::DataType;

Shares::Share Intersection(const Shares::Share& a, const Shares::Share& b) {
  const size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Transfers elements of one state between this rank and its peers.
class RangeExchange {
 public:
  RangeExchange(collectives::Communicator& world, kernels::Device& device, const Shares& shares,
                const CheckpointRanges& ranges)
      : world_(world),
        device_(device),
        shares_(shares),
        ranges_(ranges),
        shard_(shares.of(world.rank())),
        range_(ranges.of(world.rank())) {}

  // All ranks order transfers by sender and then by receiver, so that they never wait for each
  // other in a circle.
  absl::Status Run(const float* shard, float* range) {
    const uint32_t self = world_.rank();
    for (uint32_t sender = 0; sender < self; ++sender) RETURN_IF_ERROR(Receive(sender, range));
    for (uint32_t receiver = 0; receiver < world_.size(); ++receiver) {
      if (receiver != self) RETURN_IF_ERROR(Send(shard, receiver));
    }
    if (const Shares::Share kept = Intersection(shard_, range_); kept.count() > 0) {
      device_.CopyToHost(range + (kept.begin - range_.begin), shard + (kept.begin - shard_.begin),
                         kept.count() * sizeof(float));
    }
    for (uint32_t sender = self + 1; sender < world_.size(); ++sender) {
      RETURN_IF_ERROR(Receive(sender, range));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Send(const float* shard, uint32_t receiver) {
    const Shares::Share part = Intersection(shard_, ranges_.of(receiver));
    if (part.count() == 0) return absl::OkStatus();
    const float* const values = shard + (part.begin - shard_.begin);
    if (device_.host_memory()) {
      return world_.Send(values, part.count(), DataType::kFloat32, receiver)->Wait();
    }
    const auto host = kernels::MakeAlignedFloats(part.count());
    device_.CopyToHost(host.get(), values, part.count() * sizeof(float));
    return world_.Send(host.get(), part.count(), DataType::kFloat32, receiver)->Wait();
  }

  absl::Status Receive(uint32_t sender, float* range) {
    const Shares::Share part = Intersection(shares_.of(sender), range_);
    if (part.count() == 0) return absl::OkStatus();
    return world_
        .Recv(range + (part.begin - range_.begin), part.count(), DataType::kFloat32, sender)
        ->Wait();
  }

  collectives::Communicator& world_;
  kernels::Device& device_;
  const Shares& shares_;
  const CheckpointRanges& ranges_;
  const Shares::Share shard_;  // this rank's
  const Shares::Share range_;
};

}  // namespace

CheckpointRanges CheckpointRanges::AllOnFirst(size_t elements, uint32_t ranks) {
  std::vector<size_t> begins(ranks + 1, elements);
  begins[0] = 0;
  return CheckpointRanges(std::move(begins));
}

CheckpointRanges CheckpointRanges::Divide(absl::Span<const nn::ParameterInfo> parameters,
                                          const Shares& shares, uint32_t ranks) {
  std::vector<size_t> begins(ranks + 1, shares.elements());
  for (const nn::ParameterInfo& parameter : parameters) {
    const size_t middle = parameter.offset + parameter.count / 2;
    size_t& begin = begins[middle / shares.length()];
    begin = std::min(begin, parameter.offset);
  }
  // A rank without tensors has an empty range.
  for (uint32_t rank = ranks; rank-- > 0;) {
    begins[rank] = std::min(begins[rank], begins[rank + 1]);
  }
  return CheckpointRanges(std::move(begins));
}

absl::Status GatherRange(collectives::Communicator& world, kernels::Device& device,
                         const float* shard, const Shares& shares, const CheckpointRanges& ranges,
                         float* range) {
  return RangeExchange(world, device, shares, ranges).Run(shard, range);
}

}  // namespace muster::train
