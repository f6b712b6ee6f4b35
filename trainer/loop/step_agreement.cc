#include "trainer/loop/step_agreement.h"

#include <algorithm>

#include "common/status.h"

namespace muster::train {

int32_t StepAgreement::ChooseSteps(SteadyTime now) const {
  const absl::Duration step_time = (now - last_) / std::max(1, steps_);
  if (step_time <= kInterval / kMaxSteps) return kMaxSteps;
  return std::max<int32_t>(1, static_cast<int32_t>(kInterval / step_time));
}

absl::StatusOr<AgreedRequests> StepAgreement::Agree(const RankVote& vote, SteadyTime now) {
  // Sums over the ranks. Only rank 0 contributes to the last one.
  enum { kStop, kCheckpoint, kWriting, kFailed, kNextSteps, kCount };
  int32_t sums[kCount] = {vote.stop, vote.checkpoint, vote.writing, vote.failed,
                          world_.rank() == 0 ? ChooseSteps(now) : 0};
  if (world_.size() > 1) {
    RETURN_IF_ERROR(world_
                        .AllReduce(sums, sums, kCount, collectives::DataType::kInt32,
                                   collectives::ReduceOp::kSum)
                        ->Wait());
    due_steps_ = sums[kNextSteps];
  }
  steps_ = 0;
  last_ = now;
  return AgreedRequests{.stop = sums[kStop] > 0,
                        .checkpoint = sums[kCheckpoint] > 0 && sums[kWriting] == 0,
                        .writing = sums[kWriting] > 0,
                        .failed = sums[kFailed] > 0};
}

}  // namespace muster::train
