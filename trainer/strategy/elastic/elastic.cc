#include "trainer/strategy/elastic/elastic.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/data/sampler.h"
#include "trainer/strategy/ddp/step.h"
#include "trainer/strategy/elastic/shard_losses.h"
#include "trainer/strategy/elastic/shard_tree.h"
#include "trainer/strategy/elastic/tree_bucket_reducer.h"
#include "trainer/strategy/single_device_setup.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

class TreeGradientReducer final : public GradientReducer {
 public:
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(const StepParts& parts,
                                                                 const ShardTree* tree) {
    TreeBucketReducerOptions options;
    options.elements = parts.plan->parameter_elements();
    options.buffers = parts.state->buffers();
    options.buffer_elements = parts.plan->buffer_elements();
    const v1::StrategySpec& strategy = parts.context->spec->strategy();
    if (strategy.first_bucket_bytes() > 0) {
      options.first_bucket_bytes = strategy.first_bucket_bytes();
    }
    if (strategy.bucket_bytes() > 0) options.bucket_bytes = strategy.bucket_bytes();
    ASSIGN_OR_RETURN(auto buckets, TreeBucketReducer::Create(parts.replicas, &parts.plan->device(),
                                                             tree, options));
    return std::unique_ptr<GradientReducer>(new TreeGradientReducer(parts, std::move(buckets)));
  }

  float* gradients() override { return buckets_->gradients(); }
  void Accumulate(bool first) override { buckets_->Accumulate(first); }
  void BeginBackward() override {
    for (uint32_t i = 0; i < losses_.size(); ++i) losses_[i] = *parts_.controller->loss(i);
    buckets_->Begin(losses_);
  }
  void GradientsReady(size_t offset) override { buckets_->Ready(offset); }
  absl::Status EndBackward() override { return absl::OkStatus(); }

  absl::Status Finish(StepTimes& times) override {
    StepController& controller = *parts_.controller;
    const SteadyTime backward_end = Now().steady;
    const absl::Duration computed = buckets_->kernel_time();
    RETURN_IF_ERROR(buckets_->Finish());
    controller.SetTotalLoss(buckets_->totals());
    times.exposed_communication +=
        Now().steady - backward_end - (buckets_->kernel_time() - computed);
    if (!controller.checks_gradients()) return absl::OkStatus();
    // All ranks have the same sums, to the bit, and so the same answer.
    const Stopwatch stopwatch(check_time_);
    controller.CheckGradients(gradients(), parts_.plan->parameter_elements());
    return absl::OkStatus();
  }

  uint64_t operations() const override { return buckets_->operations(); }
  uint64_t bytes() const override { return buckets_->bytes(); }
  absl::Duration kernel_time() const override { return buckets_->kernel_time() + check_time_; }

 private:
  TreeGradientReducer(const StepParts& parts, std::unique_ptr<TreeBucketReducer> buckets)
      : parts_(parts), buckets_(std::move(buckets)), losses_(parts.controller->losses()) {}

  const StepParts parts_;
  const std::unique_ptr<TreeBucketReducer> buckets_;
  std::vector<kernels::LossResult> losses_;  // by shard of this rank
  absl::Duration check_time_;
};

class Elastic final : public DataParallelStrategy {
 public:
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyContext& context,
                                                          CompiledModel model) {
    const uint32_t ranks = context.groups->world->size();
    if (context.canonical_layout && ranks > 1) {
      return absl::FailedPreconditionError(
          "train.deterministic: the ranks run on different processor types, whose results differ; "
          "use nodes of one type or set deterministic to true");
    }
    if (ranks > context.shares) {
      return absl::InternalError(
          absl::StrCat("the job has ", ranks, " ranks, more than its maximum of ", context.shares));
    }
    ASSIGN_OR_RETURN(ModelState state, ModelState::Create(model.plan.get(), model.optimizer.get(),
                                                          /*averages=*/context.spec->has_ema()));
    std::unique_ptr<Elastic> strategy(new Elastic(context, std::move(model), std::move(state)));
    const auto create_path = [&](const StepParts& parts) -> absl::StatusOr<GradientPath> {
      GradientPath path;
      ASSIGN_OR_RETURN(path.reducer, TreeGradientReducer::Create(parts, &strategy->tree_));
      path.update = std::make_unique<ReplicatedUpdate>(parts, path.reducer.get());
      return path;
    };
    RETURN_IF_ERROR(strategy->Build(create_path, /*threads=*/nullptr));
    return strategy;
  }

  BatchShare batch_share() const override {
    return {.index = own_.begin, .count = tree_.shards(), .slices = own_.size()};
  }

 private:
  Elastic(const StrategyContext& context, CompiledModel model, ModelState state)
      : DataParallelStrategy(context, model.plan.get(), std::move(model.optimizer),
                             std::move(state), model.plan.get()),
        plan_(std::move(model.plan)),
        tree_(context.shares, context.groups->world->size()),
        own_(tree_.of(context.groups->world->rank())),
        evaluation_losses_(context.groups->world.get(), &tree_) {}

  uint32_t slices() const override { return own_.size(); }
  data::Batch SliceOf(const data::Batch& batch, uint32_t index) const override {
    const data::SampleRange shard =
        data::Share(batch.global_samples, own_.begin + index, tree_.shards());
    return batch.Samples({shard.begin - batch.first_sample, shard.end - batch.first_sample});
  }

  absl::StatusOr<nn::LossResult> SumLosses(absl::Span<const nn::LossResult> own) override {
    evaluation_losses_.Begin(own);
    return evaluation_losses_.Finish();
  }

  const std::unique_ptr<nn::Plan> plan_;
  const ShardTree tree_;
  const ShardRange own_;
  ShardLosses evaluation_losses_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpElastic(const ModelSetup& setup) {
  if (!setup.devices.front()->host_memory()) {
    return absl::InvalidArgumentError(
        "train.deterministic: elastic is not supported on GPUs; set resources.device to cpu");
  }
  return SetUpOnOneDevice(setup, Elastic::Create);
}

}  // namespace muster::train
