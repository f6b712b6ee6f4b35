#include "trainer/objective/objective.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/objective/cross_entropy_objective.h"
#include "trainer/objective/nt_xent_objective.h"

namespace muster::train {
namespace {

absl::StatusOr<collectives::Communicator*> NegativesOf(const v1::ObjectiveSpec& spec,
                                                       const ProcessGroups& groups) {
  if (spec.negatives() == "rank") return nullptr;
  if (spec.negatives() != "global" && spec.negatives() != "node") {
    return absl::InvalidArgumentError(absl::StrCat(
        "train.objective.negatives: unknown '", spec.negatives(), "'; one of: global, node, rank"));
  }
  collectives::Communicator* const group =
      (spec.negatives() == "node" ? groups.local_group : groups.world).get();
  if (group == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.objective.negatives: no process group for '", spec.negatives(), "'"));
  }
  return group;
}

}  // namespace

bool NeedsLocalGroup(const v1::ObjectiveSpec& spec) {
  return spec.name() == "nt_xent" && spec.negatives() == "node";
}

absl::StatusOr<std::unique_ptr<Objective>> Objective::Create(const v1::ObjectiveSpec& spec,
                                                             const ProcessGroups& groups,
                                                             uint32_t max_samples,
                                                             int64_t output_width,
                                                             kernels::Device& device) {
  if (spec.name() == "cross_entropy") {
    return std::make_unique<CrossEntropyObjective>(spec.label_smoothing());
  }
  if (spec.name() != "nt_xent") {
    return absl::InvalidArgumentError(absl::StrCat("train.objective.name: unknown '", spec.name(),
                                                   "'; one of: cross_entropy, nt_xent"));
  }
  NtXentOptions options;
  options.temperature = spec.temperature();
  ASSIGN_OR_RETURN(options.group, NegativesOf(spec, groups));
  options.max_samples = max_samples;
  options.width = output_width;
  options.device = &device;
  return NtXentObjective::Create(options);
}

absl::StatusOr<nn::LossResult> Objective::Compute(nn::Execution& model, uint32_t samples,
                                                  uint64_t global_samples, bool training) {
  nn::LossResult loss;
  if (result_.bytes() == 0) {
    ASSIGN_OR_RETURN(result_, model.device().Allocate(sizeof(loss), "the loss"));
  }
  RETURN_IF_ERROR(Queue(model, samples, global_samples, training, result_.as<nn::LossResult>()));
  model.device().CopyToHost(&loss, result_.data(), sizeof(loss));
  return loss;
}

}  // namespace muster::train
