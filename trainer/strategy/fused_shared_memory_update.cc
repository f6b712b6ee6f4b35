#include "trainer/strategy/fused_shared_memory_update.h"

#include <algorithm>

#include "absl/types/span.h"
#include "collectives/reduce.h"
#include "common/status.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

// A block's working set is a fraction of the L2 cache, so that only its first reads and last writes
// access memory.
constexpr size_t kBlockElements = 8 << 10;

}  // namespace

FusedSharedMemoryUpdate::FusedSharedMemoryUpdate(collectives::Communicator* communicator,
                                                 Optimizer* optimizer, size_t elements)
    : communicator_(communicator),
      optimizer_(optimizer),
      shares_(elements, communicator->size()),
      sum_(kernels::MakeAlignedFloats(kBlockElements)),
      addends_(communicator->size()) {}

absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> FusedSharedMemoryUpdate::Create(
    collectives::Communicator* communicator, HostBucketReducer* reducer, Optimizer* optimizer,
    size_t elements) {
  std::unique_ptr<FusedSharedMemoryUpdate> update(
      new FusedSharedMemoryUpdate(communicator, optimizer, elements));
  ASSIGN_OR_RETURN(update->memory_, communicator->Allocate(elements * sizeof(float)));
  for (uint32_t rank = 0; rank < communicator->size(); ++rank) {
    const Peer peer{reducer->PeerGradients(rank),
                    static_cast<float*>(communicator->PeerData(*update->memory_, rank))};
    if (peer.gradients == nullptr || peer.parameters == nullptr) return {nullptr};
    update->peers_.push_back(peer);
  }
  return {std::move(update)};
}

absl::Status FusedSharedMemoryUpdate::Run(const kernels::UpdateScalars* scalars) {
  {
    const Stopwatch stopwatch(kernel_time_);
    const Shares::Share share = shares_.of(communicator_->rank());
    for (size_t begin = share.begin; begin < share.end; begin += kBlockElements) {
      UpdateBlock(scalars, begin, std::min(kBlockElements, share.end - begin));
    }
  }
  // No rank may read parameters that others still write, or write gradients that others still read.
  return communicator_->Barrier()->Wait();
}

void FusedSharedMemoryUpdate::UpdateBlock(const kernels::UpdateScalars* scalars, size_t begin,
                                          size_t count) {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    addends_[rank] = peers_[rank].gradients + begin;
  }
  void* sum = sum_.get();
  collectives::ReduceArrays(addends_, absl::MakeConstSpan(&sum, 1), count,
                            collectives::DataType::kFloat32, collectives::ReduceOp::kSum);
  float* const updated = parameters() + begin;
  optimizer_->StepRange(scalars, begin, count, updated, sum_.get());
  for (const Peer& peer : peers_) {
    float* const theirs = peer.parameters + begin;
    if (theirs != updated) std::copy_n(updated, count, theirs);
  }
}

absl::StatusOr<float*> FusedSharedMemoryUpdate::CopyStates(size_t slot) {
  const absl::Span<const OptimizerState> states = optimizer_->states();
  const size_t elements = shares_.elements();
  const bool is_first = communicator_->rank() == 0;
  if (copies_.size() <= slot) copies_.resize(slot + 1);
  StatesCopy& copy = copies_[slot];
  if (copy.of_first == nullptr && !states.empty()) {
    ASSIGN_OR_RETURN(copy.memory,
                     communicator_->Allocate(states.size() * elements * sizeof(float)));
    copy.of_first = static_cast<float*>(communicator_->PeerData(*copy.memory, 0));
    // Only the memory of rank 0 is needed. All ranks can access it as long as the communicator.
    if (!is_first) copy.memory.reset();
  }
  const Shares::Share own = shares_.of(communicator_->rank());
  for (size_t i = 0; i < states.size(); ++i) {
    std::copy_n(states[i].values.get() + own.begin, own.count(),
                copy.of_first + i * elements + own.begin);
  }
  RETURN_IF_ERROR(communicator_->Barrier()->Wait());
  return is_first ? copy.of_first : nullptr;
}

}  // namespace muster::train
