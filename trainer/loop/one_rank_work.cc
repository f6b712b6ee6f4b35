#include "trainer/loop/one_rank_work.h"

#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::train {
namespace {

enum Word : uint8_t { kWorking, kDone };

absl::Status Broadcast(collectives::Communicator& world, uint32_t worker, Word& word) {
  return world.Broadcast(&word, 1, collectives::DataType::kUint8, worker)->Wait();
}

}  // namespace

absl::Status RunOnOneRank(collectives::Communicator& world, uint32_t worker,
                          absl::Duration interval,
                          absl::FunctionRef<absl::Status(const std::function<void()>&)> work) {
  Word word = kWorking;
  if (world.rank() != worker) {
    while (word == kWorking) RETURN_IF_ERROR(Broadcast(world, worker, word));
    return absl::OkStatus();
  }
  absl::Status lost;
  SteadyTime last = Now().steady;
  RETURN_IF_ERROR(work([&] {
    if (!lost.ok() || Now().steady - last < interval) return;
    lost = Broadcast(world, worker, word);
    last = Now().steady;
  }));
  RETURN_IF_ERROR(lost);
  word = kDone;
  return Broadcast(world, worker, word);
}

}  // namespace muster::train
