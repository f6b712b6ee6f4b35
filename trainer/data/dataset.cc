#include "trainer/data/dataset.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "trainer/data/cifar.h"
#include "trainer/data/idx_dataset.h"
#include "trainer/data/image_folder.h"

namespace muster::data {
namespace {

using Opener = absl::StatusOr<std::unique_ptr<ImageDataset>> (*)(const DatasetInfo& info,
                                                                 const std::string& path,
                                                                 Split split,
                                                                 const Cache& cache);
struct Entry {
  DatasetInfo info;
  Opener open;
};

const std::vector<Entry>& Registry() {
  static const auto* registry = new std::vector<Entry>{
      {{"fashion_mnist", 28, 28, 1, 10, {0.2860f}, {0.3530f}}, OpenIdxDataset},
      {{"mnist", 28, 28, 1, 10, {0.1307f}, {0.3081f}}, OpenIdxDataset},
      {{"cifar10", 32, 32, 3, 10, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}},
       OpenCifar10},
      {{"cifar100", 32, 32, 3, 100, {0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}},
       OpenCifar100},
      // Mean and deviation of ImageNet.
      {{"image_folder", 0, 0, 3, 0, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
       OpenImageFolder},
  };
  return *registry;
}

absl::StatusOr<const Entry*> Find(absl::string_view name) {
  std::vector<std::string> known;
  for (const Entry& entry : Registry()) {
    if (entry.info.name == name) return &entry;
    known.push_back(entry.info.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dataset '", name, "'; known datasets: ", absl::StrJoin(known, ", ")));
}

// Replaces `values` by `wanted` unless that is empty.
absl::Status Override(absl::string_view what, const std::vector<float>& wanted, int64_t channels,
                      std::vector<float>& values) {
  if (wanted.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(wanted.size()) != channels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dataset.", what, " has ", wanted.size(), " values, expected one per channel: ", channels));
  }
  values = wanted;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DatasetInfo> FindDataset(absl::string_view name) {
  ASSIGN_OR_RETURN(const Entry* entry, Find(name));
  return entry->info;
}

absl::StatusOr<std::unique_ptr<ImageDataset>> OpenDataset(const DatasetOptions& options,
                                                          Split split, const Cache& cache) {
  ASSIGN_OR_RETURN(const Entry* entry, Find(options.name));
  DatasetInfo info = entry->info;
  RETURN_IF_ERROR(Override("mean", options.mean, info.channels, info.mean));
  RETURN_IF_ERROR(Override("standard_deviation", options.standard_deviation, info.channels,
                           info.standard_deviation));
  for (const float deviation : info.standard_deviation) {
    if (!(deviation > 0) || !std::isfinite(deviation)) {
      return absl::InvalidArgumentError(
          absl::StrCat("dataset.standard_deviation: ", deviation, " must be greater than 0"));
    }
  }
  return entry->open(info, options.path, split, cache);
}

}  // namespace muster::data
