#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "spec/fields.h"
#include "spec/spec.h"
#include "spec/validate_parts.h"

namespace muster::spec {
namespace {

constexpr uint32_t kMaxGlobalBatch = 1 << 24;
constexpr uint32_t kMaxCheckpointsKept = 1000;
constexpr int kMaxInitExclude = 1000;
// As far as the scale grows while it is trained.
constexpr double kMaxLossScale = 1 << 24;

void CheckLength(const v1::TrainSpec& train, Problems& problems) {
  problems.RequireRange("train.epochs", train.epochs(), 0, kMaxEpochs);
  if (train.epochs() == 0 && train.max_steps() == 0) {
    problems.Add("train", "epochs or max_steps is missing: how long to train");
  }
  if (train.epochs() > 0 && train.schedule().warmup_epochs() > train.epochs()) {
    problems.Add("train.schedule.warmup_epochs", "is longer than train.epochs");
  }
}

// Every rank has a sample in every part of a step.
void CheckBatch(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  const uint32_t ranks = MaxWorldSize(spec);
  const uint64_t parts = train.accumulation_steps();
  problems.Require(parts >= 1 && parts <= kMaxGlobalBatch, "train.accumulation_steps",
                   absl::StrCat("from 1 to ", kMaxGlobalBatch));
  if (train.global_batch() < ranks) {
    problems.Add("train.global_batch",
                 absl::StrCat(train.global_batch(), " is below the number of ranks, ", ranks));
  } else if (train.global_batch() < ranks * parts) {
    problems.Add("train.global_batch",
                 absl::StrCat(train.global_batch(), " is below ranks times accumulation_steps, ",
                              ranks * parts));
  }
  problems.Require(train.global_batch() <= kMaxGlobalBatch, "train.global_batch",
                   absl::StrCat("at most ", kMaxGlobalBatch));
  if (train.objective().name() != "nt_xent") return;
  const v1::AugmentSpec& augment = train.augment();
  if (augment.crop_padding() == 0 && !augment.flip() && !augment.has_random_resized_crop() &&
      !augment.has_random_erasing()) {
    problems.Add("train.augment", "is missing: without it nt_xent's two views of an image are one");
  }
  problems.Require(train.global_batch() >= 2, "train.global_batch",
                   "at least 2 with nt_xent, which compares images with each other");
  if (parts > 1) {
    problems.Add("train.accumulation_steps",
                 "must be 1 with nt_xent: an image would be compared with those of its part alone");
  }
}

void CheckLossScale(const v1::MixedPrecisionSpec& mixed, Problems& problems) {
  const v1::LossScaleSpec& scale = mixed.loss_scale();
  if (scale.initial() == 0) {
    problems.Add("train.mixed_precision.loss_scale.initial",
                 "is missing: without it the loss is scaled with float16 alone");
    return;
  }
  problems.RequireRange("train.mixed_precision.loss_scale.initial", scale.initial(), 1,
                        kMaxLossScale);
  problems.Require(scale.growth_interval() >= 1, "train.mixed_precision.loss_scale.growth_interval",
                   "at least 1");
  problems.Require(scale.growth_factor() >= 1 && scale.growth_factor() <= kMaxLossScale,
                   "train.mixed_precision.loss_scale.growth_factor",
                   absl::StrCat("from 1 to ", kMaxLossScale));
  problems.Require(scale.backoff_factor() > 0 && scale.backoff_factor() < 1,
                   "train.mixed_precision.loss_scale.backoff_factor", "above 0 and below 1");
}

void CheckPrecision(const v1::TrainSpec& train, Problems& problems) {
  RequireWord("train.precision", train, "precision", problems);
  if (!train.has_mixed_precision()) return;
  const v1::MixedPrecisionSpec& mixed = train.mixed_precision();
  for (const char* name : {"dtype", "gradient_dtype"}) {
    const auto& field = *mixed.GetDescriptor()->FindFieldByName(name);
    if (mixed.GetReflection()->GetString(mixed, &field).empty()) continue;  // no default at O0
    RequireWord(absl::StrCat("train.mixed_precision.", name), mixed, name, problems);
  }
  if (train.precision() == "O0") {
    problems.Add(
        "train.mixed_precision",
        "is given, but train.precision is O0, float32 throughout; O1, O2 and O3 are mixed");
  } else if (mixed.has_loss_scale()) {
    CheckLossScale(mixed, problems);
  }
}

void CheckInitialState(const v1::TrainSpec& train, Problems& problems) {
  if (!train.init_from().empty()) {
    problems.RequireAbsolutePath("train.init_from", train.init_from());
    problems.Require(absl::EndsWith(train.init_from(), ".safetensors"), "train.init_from",
                     "a .safetensors file");
  } else if (!train.init_exclude().empty()) {
    problems.Add("train.init_exclude", "says what init_from leaves out, and init_from is missing");
  }
  problems.Require(train.init_exclude_size() <= kMaxInitExclude, "train.init_exclude",
                   absl::StrCat("at most ", kMaxInitExclude, " beginnings of names"));
  for (const std::string& prefix : train.init_exclude()) {
    problems.RequireText("train.init_exclude", prefix);
    problems.Require(!prefix.empty(), "train.init_exclude", "beginnings of names, none empty");
  }
}

void RequireDirectory(absl::string_view path, const std::string& directory, Problems& problems) {
  if (directory.empty()) {
    problems.Add(path, "is missing: where on the node to write");
  } else {
    problems.RequireAbsolutePath(path, directory);
  }
}

void CheckOutput(const v1::TrainSpec& train, Problems& problems) {
  if (train.has_checkpoint()) {
    RequireDirectory("train.checkpoint.dir", train.checkpoint().dir(), problems);
    problems.Require(
        train.checkpoint().keep() >= 1 && train.checkpoint().keep() <= kMaxCheckpointsKept,
        "train.checkpoint.keep", absl::StrCat("from 1 to ", kMaxCheckpointsKept));
  }
  if (train.has_tensorboard()) {
    RequireDirectory("train.tensorboard.dir", train.tensorboard().dir(), problems);
    problems.Require(train.tensorboard().every_steps() >= 1, "train.tensorboard.every_steps",
                     "at least 1");
  }
}

}  // namespace

void RequireWord(absl::string_view path, const google::protobuf::Message& message,
                 const std::string& name, Problems& problems) {
  const auto& field = *message.GetDescriptor()->FindFieldByName(name);
  const FieldNotes& notes = NotesOn(field);
  problems.RequireWord(path, message.GetReflection()->GetString(message, &field), notes.words,
                       notes.words_elsewhere);
}

void CheckTrain(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  CheckModel(train.model(), problems);
  CheckData(train, problems);
  CheckLearning(train, problems);
  CheckLength(train, problems);
  CheckBatch(spec, problems);
  CheckPrecision(train, problems);
  RequireWord("train.cuda_graphs", train, "cuda_graphs", problems);
  CheckStrategy(spec, problems);
  CheckInitialState(train, problems);
  CheckOutput(train, problems);
}

}  // namespace muster::spec
