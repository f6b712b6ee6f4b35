#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "spec/validate_parts.h"

namespace muster::spec {
namespace {

constexpr int kMaxMilestones = 1000;
constexpr int kMaxProjectionLayers = 16;

void RequireAboveZero(absl::string_view path, double value, Problems& problems) {
  problems.Require(value > 0 && std::isfinite(value), path, "above 0");
}

void RequireShare(absl::string_view path, double value, Problems& problems) {
  problems.Require(value >= 0 && value < 1, path, "from 0 to below 1");
}

void CheckAdamW(const v1::OptimizerSpec& optimizer, Problems& problems) {
  const bool adamw = optimizer.name() == "adamw";
  problems.RequireOption(optimizer.beta1() == 0 || adamw, "train.optimizer.beta1", "adamw");
  problems.RequireOption(optimizer.beta2() == 0 || adamw, "train.optimizer.beta2", "adamw");
  problems.RequireOption(optimizer.epsilon() == 0 || adamw, "train.optimizer.epsilon", "adamw");
  if (!adamw) return;
  RequireShare("train.optimizer.beta1", optimizer.beta1(), problems);
  RequireShare("train.optimizer.beta2", optimizer.beta2(), problems);
  RequireAboveZero("train.optimizer.epsilon", optimizer.epsilon(), problems);
}

void CheckOptimizer(const v1::OptimizerSpec& optimizer, Problems& problems) {
  RequireWord("train.optimizer.name", optimizer, "name", problems);
  const bool sgd = optimizer.name() == "sgd";
  const bool lars = optimizer.name() == "lars";
  if (optimizer.learning_rate() == 0) {
    problems.Add("train.optimizer.learning_rate", "is missing");
  } else {
    RequireAboveZero("train.optimizer.learning_rate", optimizer.learning_rate(), problems);
  }
  problems.RequireOption(optimizer.momentum() == 0 || sgd || lars, "train.optimizer.momentum",
                         "sgd and lars");
  RequireShare("train.optimizer.momentum", optimizer.momentum(), problems);
  problems.Require(optimizer.weight_decay() >= 0 && std::isfinite(optimizer.weight_decay()),
                   "train.optimizer.weight_decay", "0 or more");
  problems.RequireOption(!optimizer.nesterov() || sgd, "train.optimizer.nesterov", "sgd");
  if (optimizer.nesterov() && sgd && optimizer.momentum() == 0) {
    problems.Add("train.optimizer.nesterov", "needs a momentum");
  }
  CheckAdamW(optimizer, problems);
  problems.RequireOption(optimizer.trust_coefficient() == 0 || lars,
                         "train.optimizer.trust_coefficient", "lars");
  if (lars) {
    RequireAboveZero("train.optimizer.trust_coefficient", optimizer.trust_coefficient(), problems);
  }
  problems.Require(optimizer.clip_norm() >= 0 && std::isfinite(optimizer.clip_norm()),
                   "train.optimizer.clip_norm", "0 or more");
}

void CheckSteps(const v1::ScheduleSpec& schedule, Problems& problems) {
  if (schedule.milestones().empty() == (schedule.every_epochs() == 0)) {
    problems.Add("train.schedule", "step needs milestones or every_epochs, one of them");
  }
  problems.Require(schedule.milestones_size() <= kMaxMilestones, "train.schedule.milestones",
                   absl::StrCat("at most ", kMaxMilestones));
  double before = 0;
  for (const double milestone : schedule.milestones()) {
    // Written so that NaN is refused.
    if (!(milestone > before && milestone <= kMaxEpochs)) {
      problems.Add(
          "train.schedule.milestones",
          absl::StrCat("must be epochs above 0 that rise, not ", milestone, " after ", before));
      break;
    }
    before = milestone;
  }
  problems.RequireRange("train.schedule.every_epochs", schedule.every_epochs(), 0, kMaxEpochs);
  RequireAboveZero("train.schedule.factor", schedule.factor(), problems);
}

void CheckSchedule(const v1::ScheduleSpec& schedule, Problems& problems) {
  RequireWord("train.schedule.name", schedule, "name", problems);
  problems.RequireRange("train.schedule.warmup_epochs", schedule.warmup_epochs(), 0, kMaxEpochs);
  if (schedule.name() == "step") return CheckSteps(schedule, problems);
  problems.RequireOption(schedule.milestones().empty(), "train.schedule.milestones", "step");
  problems.RequireOption(schedule.every_epochs() == 0, "train.schedule.every_epochs", "step");
  problems.RequireOption(schedule.factor() == 0, "train.schedule.factor", "step");
}

void CheckObjective(const v1::ObjectiveSpec& objective, Problems& problems) {
  RequireWord("train.objective.name", objective, "name", problems);
  const bool nt_xent = objective.name() == "nt_xent";
  problems.RequireOption(objective.label_smoothing() == 0 || !nt_xent,
                         "train.objective.label_smoothing", "cross_entropy");
  RequireShare("train.objective.label_smoothing", objective.label_smoothing(), problems);
  if (nt_xent || !objective.negatives().empty()) {
    RequireWord("train.objective.negatives", objective, "negatives", problems);
  }
  problems.RequireOption(objective.negatives().empty() || nt_xent, "train.objective.negatives",
                         "nt_xent");
  problems.RequireOption(objective.temperature() == 0 || nt_xent, "train.objective.temperature",
                         "nt_xent");
  if (nt_xent) {
    RequireAboveZero("train.objective.temperature", objective.temperature(), problems);
  }
  problems.RequireOption(objective.projection().empty() || nt_xent, "train.objective.projection",
                         "nt_xent");
  problems.Require(objective.projection_size() <= kMaxProjectionLayers,
                   "train.objective.projection",
                   absl::StrCat("at most ", kMaxProjectionLayers, " widths"));
  for (const uint32_t width : objective.projection()) {
    problems.RequireRange("train.objective.projection", width, 1, kMaxWidth);
  }
}

}  // namespace

void CheckLearning(const v1::TrainSpec& train, Problems& problems) {
  CheckOptimizer(train.optimizer(), problems);
  CheckSchedule(train.schedule(), problems);
  CheckObjective(train.objective(), problems);
  if (!train.has_ema()) return;
  if (train.ema().decay() == 0) {
    problems.Add("train.ema.decay", "is missing");
  } else {
    problems.Require(train.ema().decay() > 0 && train.ema().decay() < 1, "train.ema.decay",
                     "above 0 and below 1");
  }
}

}  // namespace muster::spec
