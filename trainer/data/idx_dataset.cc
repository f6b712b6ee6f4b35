#include "trainer/data/idx_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "trainer/data/idx.h"

namespace muster::data {
namespace {

class IdxDataset final : public ArrayDataset {
 public:
  IdxDataset(DatasetInfo info, IdxFile images, IdxFile labels)
      : ArrayDataset(std::move(info), images.elements(), labels.elements()),
        images_(std::move(images)),
        labels_(std::move(labels)) {}

 private:
  const IdxFile images_;
  const IdxFile labels_;
};

absl::Status CheckLabels(const IdxFile& labels, int64_t classes) {
  const auto elements = labels.elements();
  const auto bad = std::find_if(elements.begin(), elements.end(),
                                [classes](uint8_t label) { return label >= classes; });
  if (bad == elements.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(labels.source(), ": label ", int{*bad}, " of sample ",
                                          bad - elements.begin(), " is out of range for ", classes,
                                          " classes"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageDataset>> OpenIdxDataset(const DatasetInfo& info,
                                                             const std::string& path, Split split,
                                                             const Cache& cache) {
  const std::string stem = absl::StrCat(path, "/", split == Split::kTrain ? "train" : "t10k");
  ASSIGN_OR_RETURN(IdxFile images, IdxFile::Open(stem + "-images-idx3-ubyte", cache));
  ASSIGN_OR_RETURN(IdxFile labels, IdxFile::Open(stem + "-labels-idx1-ubyte", cache));
  const auto shape = images.dimensions();
  if (shape.size() != 3 || shape[1] != info.height || shape[2] != info.width) {
    return absl::DataLossError(absl::StrCat(images.source(), " contains an array of ",
                                            absl::StrJoin(shape, "x"), ", not images of ",
                                            info.height, "x", info.width));
  }
  if (labels.dimensions().size() != 1 || labels.dimensions()[0] != shape[0]) {
    return absl::DataLossError(absl::StrCat(labels.source(), " contains an array of ",
                                            absl::StrJoin(labels.dimensions(), "x"),
                                            ", not the labels of ", shape[0], " images"));
  }
  if (shape[0] == 0) {
    return absl::DataLossError(absl::StrCat(images.source(), " contains no images"));
  }
  RETURN_IF_ERROR(CheckLabels(labels, info.classes));
  return std::make_unique<IdxDataset>(info, std::move(images), std::move(labels));
}

}  // namespace muster::data
