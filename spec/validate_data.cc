#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "spec/validate_parts.h"

namespace muster::spec {
namespace {

constexpr uint32_t kMinImageSize = 4;
constexpr uint32_t kMaxImageSize = 1024;
constexpr double kMaxRatio = 100;

int ChannelsOf(const std::string& dataset) {
  return dataset == "mnist" || dataset == "fashion_mnist" ? 1 : 3;
}

void CheckChannels(absl::string_view path, int values, int channels, Problems& problems) {
  problems.Require(values == 0 || values == channels, path,
                   absl::StrCat(channels, channels == 1 ? " number" : " numbers",
                                ", one for each channel, not ", values));
}

void CheckDataset(const v1::DatasetSpec& dataset, Problems& problems) {
  RequireWord("train.dataset.name", dataset, "name", problems);
  if (dataset.path().empty()) {
    problems.Add("train.dataset.path", "is missing: the folder with its files on the node");
  } else {
    problems.RequireAbsolutePath("train.dataset.path", dataset.path());
  }
  const int channels = ChannelsOf(dataset.name());
  CheckChannels("train.dataset.mean", dataset.mean_size(), channels, problems);
  CheckChannels("train.dataset.standard_deviation", dataset.standard_deviation_size(), channels,
                problems);
  for (const float mean : dataset.mean()) {
    problems.RequireRange("train.dataset.mean", mean, 0, 1);
  }
  for (const float deviation : dataset.standard_deviation()) {
    problems.Require(deviation > 0 && deviation <= 1, "train.dataset.standard_deviation",
                     "above 0 and at most 1: of pixels scaled to 0..1");
  }
  problems.Require(dataset.center_crop() > 0 && dataset.center_crop() <= 1,
                   "train.dataset.center_crop", "above 0 and at most 1");
  RequireWord("train.dataset.resident", dataset, "resident", problems);
}

// Of a random part of an image: shares of its area, and the relation of its sides.
template <typename Part>
void CheckPart(const std::string& path, const Part& part, Problems& problems) {
  problems.Require(
      part.min_scale() > 0 && part.max_scale() <= 1 && part.min_scale() <= part.max_scale(),
      path + ".min_scale", "above 0, and at most max_scale, which is at most 1");
  problems.Require(part.min_ratio() >= 1 / kMaxRatio && part.max_ratio() <= kMaxRatio &&
                       part.min_ratio() <= part.max_ratio(),
                   path + ".min_ratio",
                   absl::StrCat("at least ", 1 / kMaxRatio,
                                ", and at most max_ratio, which is at "
                                "most ",
                                kMaxRatio));
}

void CheckAugment(const v1::TrainSpec& train, Problems& problems) {
  const v1::AugmentSpec& augment = train.augment();
  problems.Require(augment.crop_padding() <= train.image_size(), "train.augment.crop_padding",
                   "at most train.image_size");
  if (augment.has_random_resized_crop()) {
    CheckPart("train.augment.random_resized_crop", augment.random_resized_crop(), problems);
    if (augment.crop_padding() > 0) {
      problems.Add("train.augment",
                   "crop_padding and random_resized_crop both crop: only one of "
                   "them");
    }
  }
  if (augment.has_random_erasing()) {
    const v1::RandomErasingSpec& erasing = augment.random_erasing();
    CheckPart("train.augment.random_erasing", erasing, problems);
    problems.Require(erasing.probability() > 0 && erasing.probability() <= 1,
                     "train.augment.random_erasing.probability", "above 0 and at most 1");
  }
}

}  // namespace

void CheckData(const v1::TrainSpec& train, Problems& problems) {
  CheckDataset(train.dataset(), problems);
  problems.Require(train.image_size() >= kMinImageSize && train.image_size() <= kMaxImageSize,
                   "train.image_size", absl::StrCat("from ", kMinImageSize, " to ", kMaxImageSize));
  CheckAugment(train, problems);
  problems.Require(train.loader().threads() >= 1 && train.loader().threads() <= kMaxThreads,
                   "train.loader.threads", absl::StrCat("from 1 to ", kMaxThreads));
  problems.Require(train.loader().prefetch() >= 1 && train.loader().prefetch() <= kMaxThreads,
                   "train.loader.prefetch", absl::StrCat("from 1 to ", kMaxThreads));
}

}  // namespace muster::spec
