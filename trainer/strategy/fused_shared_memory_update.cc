#include "trainer/strategy/fused_shared_memory_update.h"

#include <algorithm>
#include <thread>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/reduce.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

// A block's working set is a fraction of the L2 cache, so that only its first reads and last writes
// access memory.
constexpr size_t kBlockElements = 8 << 10;
// Longest time that a running rank needs for a block, even on a machine that is overloaded. One
// that needs longer is treated as if it had ended.
constexpr absl::Duration kBlockPatience = absl::Milliseconds(200);

constexpr uint64_t PositionAt(uint64_t updates, uint64_t blocks) { return updates << 32 | blocks; }
uint64_t UpdatesAt(uint64_t position) { return position >> 32; }
uint64_t BlocksAt(uint64_t position) { return position & 0xffffffff; }

}  // namespace

FusedSharedMemoryUpdate::FusedSharedMemoryUpdate(collectives::Communicator* communicator,
                                                 const Arguments& arguments)
    : communicator_(communicator),
      optimizer_(arguments.optimizer),
      shares_states_(arguments.shares_states),
      shares_(arguments.elements, communicator->size()),
      sum_(kernels::MakeAlignedFloats(kBlockElements)),
      addends_(communicator->size()) {}

size_t FusedSharedMemoryUpdate::SharedFloats() const {
  const size_t parameters = Shares::RoundUp(shares_.elements());
  if (!shares_states_) return parameters;
  const size_t states = optimizer_->states().size();
  return parameters + Shares::RoundUp(states * shares_.elements()) + (1 + states) * kBlockElements +
         sizeof(Progress) / sizeof(float);
}

FusedSharedMemoryUpdate::Peer FusedSharedMemoryUpdate::PeerAt(float* memory,
                                                              const float* gradients) const {
  Peer peer{gradients, memory};
  if (!shares_states_) return peer;
  const size_t states = optimizer_->states().size();
  peer.states = memory + Shares::RoundUp(shares_.elements());
  peer.saved = peer.states + Shares::RoundUp(states * shares_.elements());
  // Zero is the initial state of the atomics.
  peer.progress = reinterpret_cast<Progress*>(peer.saved + (1 + states) * kBlockElements);
  return peer;
}

absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> FusedSharedMemoryUpdate::Create(
    collectives::Communicator* communicator, const Arguments& arguments) {
  std::unique_ptr<FusedSharedMemoryUpdate> update(
      new FusedSharedMemoryUpdate(communicator, arguments));
  ASSIGN_OR_RETURN(update->memory_, communicator->Allocate(update->SharedFloats() * sizeof(float)));
  if (arguments.shares_states) update->memory_->KeepForPeers();
  for (uint32_t rank = 0; rank < communicator->size(); ++rank) {
    const float* const gradients = arguments.reducer->PeerGradients(rank);
    void* const memory = communicator->PeerData(*update->memory_, rank);
    if (gradients == nullptr || memory == nullptr) return {nullptr};
    update->peers_.push_back(update->PeerAt(static_cast<float*>(memory), gradients));
  }
  if (arguments.shares_states) arguments.optimizer->MoveStates(update->own().states);
  return {std::move(update)};
}

size_t FusedSharedMemoryUpdate::BlocksOf(uint32_t rank) const {
  return (shares_.of(rank).count() + kBlockElements - 1) / kBlockElements;
}

absl::Status FusedSharedMemoryUpdate::BeginUpdate() {
  if (!shares_states_) return absl::OkStatus();
  std::atomic<uint64_t>& position = own().progress->position;
  uint64_t before = position.load();
  const bool sealed = (before & kSealed) != 0;
  if (!sealed && position.compare_exchange_strong(before, PositionAt(UpdatesAt(before) + 1, 0))) {
    return absl::OkStatus();
  }
  return absl::AbortedError("a peer was lost, and the state has been left to the next generation");
}

absl::Status FusedSharedMemoryUpdate::Run(const kernels::UpdateScalars* scalars) {
  RETURN_IF_ERROR(BeginUpdate());
  updating_ = true;
  {
    const Stopwatch stopwatch(kernel_time_);
    const Shares::Share share = shares_.of(communicator_->rank());
    for (size_t begin = share.begin; begin < share.end; begin += kBlockElements) {
      const size_t count = std::min(kBlockElements, share.end - begin);
      if (shares_states_) SaveBlock(begin, count);
      UpdateBlock(scalars, begin, count);
      if (shares_states_) own().progress->position.fetch_add(1);
    }
  }
  // No rank may read parameters that others still write, or write gradients that others still read.
  RETURN_IF_ERROR(communicator_->Barrier()->Wait());
  updating_ = false;
  return absl::OkStatus();
}

void FusedSharedMemoryUpdate::SaveBlock(size_t begin, size_t count) {
  const Peer& peer = own();
  std::copy_n(peer.parameters + begin, count, peer.saved);
  for (size_t i = 0; i < optimizer_->states().size(); ++i) {
    std::copy_n(peer.states + i * shares_.elements() + begin, count,
                peer.saved + (1 + i) * kBlockElements);
  }
  peer.progress->saved_at.store(peer.progress->position.load());
}

void FusedSharedMemoryUpdate::UpdateBlock(const kernels::UpdateScalars* scalars, size_t begin,
                                          size_t count) {
  ComputeBlock(scalars, begin, count);
  const float* const updated = parameters() + begin;
  for (const Peer& peer : peers_) {
    float* const theirs = peer.parameters + begin;
    if (theirs != updated) std::copy_n(updated, count, theirs);
  }
}

void FusedSharedMemoryUpdate::ComputeBlock(const kernels::UpdateScalars* scalars, size_t begin,
                                           size_t count) {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    addends_[rank] = peers_[rank].gradients + begin;
  }
  void* sum = sum_.get();
  collectives::ReduceArrays(addends_, absl::MakeConstSpan(&sum, 1), count,
                            collectives::DataType::kFloat32, collectives::ReduceOp::kSum);
  optimizer_->StepRange(scalars, begin, count, parameters() + begin, sum_.get());
}

uint64_t FusedSharedMemoryUpdate::Seal(uint32_t rank) {
  std::atomic<uint64_t>& position = peers_[rank].progress->position;
  uint64_t seen = position.load();
  SteadyTime changed = SteadyNow();
  while (true) {
    const bool between_updates =
        UpdatesAt(seen & ~kSealed) == 0 || BlocksAt(seen) == BlocksOf(rank);
    if ((seen & kSealed) != 0) return seen & ~kSealed;
    if (between_updates) {
      if (position.compare_exchange_strong(seen, seen | kSealed)) return seen;
      continue;
    }
    if (SteadyNow() - changed > kBlockPatience) return seen;
    std::this_thread::yield();
    const uint64_t now = position.load();
    if (now != seen) changed = SteadyNow();
    seen = now;
  }
}

std::optional<bool> FusedSharedMemoryUpdate::Complete(const kernels::UpdateScalars* scalars) {
  const uint32_t ranks = communicator_->size();
  std::vector<uint64_t> positions(ranks);
  uint64_t newest = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    positions[rank] = Seal(rank);
    newest = std::max(newest, UpdatesAt(positions[rank]));
  }
  if (UpdatesAt(positions[communicator_->rank()]) != newest) return std::nullopt;
  if (newest == 0) return false;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (rank != communicator_->rank()) CompleteShare(rank, positions[rank], newest, scalars);
  }
  // A rank that was taken for ended may have gone on, and changed what was read.
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if ((peers_[rank].progress->position.load() & ~kSealed) != positions[rank]) {
      return std::nullopt;
    }
  }
  return updating_;
}

void FusedSharedMemoryUpdate::CompleteShare(uint32_t rank, uint64_t position, uint64_t update,
                                            const kernels::UpdateScalars* scalars) {
  const Peer& from = peers_[rank];
  const Peer& to = own();
  const Shares::Share share = shares_.of(rank);
  const size_t states = optimizer_->states().size();
  const auto copy = [&](const float* parameters, const float* states_of_share, size_t stride,
                        size_t begin, size_t count) {
    std::copy_n(parameters, count, to.parameters + begin);
    for (size_t i = 0; i < states; ++i) {
      std::copy_n(states_of_share + i * stride, count, to.states + i * shares_.elements() + begin);
    }
  };
  copy(from.parameters + share.begin, from.states + share.begin, shares_.elements(), share.begin,
       share.count());
  const size_t done = UpdatesAt(position) == update ? BlocksAt(position) : 0;
  for (size_t block = done; block < BlocksOf(rank); ++block) {
    const size_t begin = share.begin + block * kBlockElements;
    const size_t count = std::min(kBlockElements, share.end - begin);
    if (from.progress->saved_at.load() == PositionAt(update, block)) {
      copy(from.saved, from.saved + kBlockElements, kBlockElements, begin, count);
    }
    ComputeBlock(scalars, begin, count);
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
