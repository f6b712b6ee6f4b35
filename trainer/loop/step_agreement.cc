#include "trainer/loop/step_agreement.h"

#include "common/status.h"

namespace muster::train {
namespace {

// A window is long enough for the mean of its steps, and short enough for a slow rank to be named
// within 50 steps of 100 ms: after 8 windows of 3 seconds in all or longer, and up to a second
// until they are reported.
constexpr int32_t kWindowSteps = 3;
constexpr int32_t kMostWindowSteps = 4096;
constexpr absl::Duration kWindow = absl::Milliseconds(100);
// A change of the length discards a window. It is therefore kept while a window takes this long.
constexpr absl::Duration kShortestWindow = absl::Milliseconds(75);
constexpr absl::Duration kLongestWindow = absl::Milliseconds(400);

}  // namespace

int32_t StepAgreement::ChooseSteps(SteadyTime now) const {
  const absl::Duration step_time = StepTime(now);
  if (step_time <= kInterval / kMaxSteps) return kMaxSteps;
  return std::max<int32_t>(1, static_cast<int32_t>(kInterval / step_time));
}

int32_t StepAgreement::ChooseWindow(SteadyTime now) const {
  const absl::Duration step_time = StepTime(now);
  const absl::Duration takes = window_steps_ * step_time;
  const bool is_short = takes < kShortestWindow;
  const bool is_long = window_steps_ > kWindowSteps && takes > kLongestWindow;
  if (window_steps_ > 0 && !is_short && !is_long) return window_steps_;
  if (step_time <= kWindow / kMostWindowSteps) return kMostWindowSteps;
  return std::max(kWindowSteps, static_cast<int32_t>(kWindow / step_time) + 1);
}

absl::StatusOr<AgreedRequests> StepAgreement::Agree(const RankVote& vote, SteadyTime now) {
  // Sums over the ranks. Only rank 0 contributes to the last two.
  enum {
    kStop,
    kInMemory,
    kOnlyOnDisk,
    kCheckpoint,
    kWriting,
    kFailed,
    kNextSteps,
    kWindowLength,
    kCount
  };
  const bool is_first = world_.rank() == 0;
  int32_t sums[kCount] = {vote.stop,
                          vote.in_memory,
                          vote.only_on_disk,
                          vote.checkpoint,
                          vote.writing,
                          vote.failed,
                          is_first ? ChooseSteps(now) : 0,
                          is_first ? ChooseWindow(now) : 0};
  if (world_.size() > 1) {
    RETURN_IF_ERROR(world_
                        .AllReduce(sums, sums, kCount, collectives::DataType::kInt32,
                                   collectives::ReduceOp::kSum)
                        ->Wait());
    due_steps_ = sums[kNextSteps];
    window_steps_ = sums[kWindowLength];
  }
  steps_ = 0;
  last_ = now;
  return AgreedRequests{.stop = sums[kStop] > 0,
                        .in_memory = sums[kInMemory] > 0 && sums[kOnlyOnDisk] == 0,
                        .checkpoint = sums[kCheckpoint] > 0 && sums[kWriting] == 0,
                        .writing = sums[kWriting] > 0,
                        .failed = sums[kFailed] > 0,
                        .window_steps = static_cast<uint32_t>(window_steps_)};
}

}  // namespace muster::train
