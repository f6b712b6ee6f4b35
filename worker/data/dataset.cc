#include "worker/data/dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/sha256.h"
#include "common/status.h"

namespace muster::data {
namespace {

const std::vector<DatasetInfo>& Registry() {
  static const auto* registry = new std::vector<DatasetInfo>{
      {"fashion_mnist", 28, 28, 1, 10, {0.2860f}, {0.3530f}},
      {"mnist", 28, 28, 1, 10, {0.1307f}, {0.3081f}},
  };
  return *registry;
}

absl::Status CheckLabels(const IdxFile& labels, int64_t classes) {
  const auto elements = labels.elements();
  const auto bad = std::find_if(elements.begin(), elements.end(),
                                [classes](uint8_t label) { return label >= classes; });
  if (bad == elements.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(labels.source(), ": label ", int{*bad}, " of sample ",
                                          bad - elements.begin(), " is not one of ", classes,
                                          " classes"));
}

}  // namespace

absl::StatusOr<DatasetInfo> FindDataset(absl::string_view name) {
  std::vector<std::string> known;
  for (const DatasetInfo& info : Registry()) {
    if (info.name == name) return info;
    known.push_back(info.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown data set '", name, "'; known are ", absl::StrJoin(known, ", ")));
}

ImageDataset::ImageDataset(DatasetInfo info, IdxFile images, IdxFile labels)
    : info_(std::move(info)),
      images_(std::move(images)),
      labels_(std::move(labels)),
      image_bytes_(static_cast<size_t>(info_.height * info_.width * info_.channels)) {}

absl::StatusOr<ImageDataset> ImageDataset::Open(const DatasetInfo& info, const std::string& path,
                                                Split split, const std::string& cache_dir) {
  const std::string stem = absl::StrCat(path, "/", split == Split::kTrain ? "train" : "t10k");
  ASSIGN_OR_RETURN(IdxFile images, IdxFile::Open(stem + "-images-idx3-ubyte", cache_dir));
  ASSIGN_OR_RETURN(IdxFile labels, IdxFile::Open(stem + "-labels-idx1-ubyte", cache_dir));
  const auto shape = images.dimensions();
  if (shape.size() != 3 || shape[1] != info.height || shape[2] != info.width) {
    return absl::DataLossError(absl::StrCat(images.source(), " holds an array of ",
                                            absl::StrJoin(shape, "x"), ", not images of ",
                                            info.height, "x", info.width));
  }
  if (labels.dimensions().size() != 1 || labels.dimensions()[0] != shape[0]) {
    return absl::DataLossError(absl::StrCat(labels.source(), " holds an array of ",
                                            absl::StrJoin(labels.dimensions(), "x"),
                                            ", not the labels of ", shape[0], " images"));
  }
  if (shape[0] == 0) return absl::DataLossError(absl::StrCat(images.source(), " holds no image"));
  RETURN_IF_ERROR(CheckLabels(labels, info.classes));
  return ImageDataset(info, std::move(images), std::move(labels));
}

std::string ImageDataset::Digest() const {
  constexpr size_t kSampledImages = 256;
  Sha256 digest;
  digest.Update(absl::StrCat(size(), " images of ", image_bytes_, " bytes"));
  digest.Update(labels_.elements().data(), labels_.elements().size());
  const size_t stride = std::max<size_t>(1, size() / kSampledImages);
  for (size_t i = 0; i < size(); i += stride) digest.Update(image(i), image_bytes_);
  return digest.HexDigest();
}

}  // namespace muster::data
