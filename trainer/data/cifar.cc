#include "trainer/data/cifar.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status.h"
#include "trainer/data/mapped_file.h"

namespace muster::data {
namespace {

constexpr size_t kPixels = 32 * 32;
constexpr size_t kImageBytes = 3 * kPixels;
constexpr size_t kImagesPerWrite = 256;

struct Layout {
  const char* subfolder;
  std::vector<std::string> training_files;
  std::string test_file;
  // Number of classes of each of a record's label bytes; the last one is the label to learn.
  std::vector<int> label_classes;

  size_t record_bytes() const { return label_classes.size() + kImageBytes; }
};

// The cached file: the pixels of all images, HWC, then their labels.
class CifarDataset final : public ArrayDataset {
 public:
  CifarDataset(DatasetInfo info, size_t images, MappedFile file)
      : ArrayDataset(std::move(info), file.bytes().first(images * kImageBytes),
                     file.bytes().subspan(images * kImageBytes, images)),
        file_(std::move(file)) {}

 private:
  const MappedFile file_;
};

std::string FindFolder(const Layout& layout, const std::string& path) {
  const std::string inner = absl::StrCat(path, "/", layout.subfolder);
  std::error_code ignored;  // opening a file there reports a better error
  return std::filesystem::is_directory(inner, ignored) ? inner : path;
}

absl::StatusOr<MappedFile> OpenRecords(const Layout& layout, const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const size_t beyond = file.bytes().size() % layout.record_bytes();
  if (beyond != 0) {
    return absl::DataLossError(
        absl::StrCat(path, " is truncated or too long: ", file.bytes().size(), " bytes are ",
                     beyond, " more than whole records of ", layout.record_bytes(), " bytes"));
  }
  if (file.bytes().empty()) return absl::DataLossError(absl::StrCat(path, " contains no images"));
  return file;
}

// Opens the split's files, which must have equal length.
absl::StatusOr<std::vector<MappedFile>> OpenSources(const Layout& layout,
                                                    const std::vector<std::string>& paths) {
  std::vector<MappedFile> sources;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(MappedFile file, OpenRecords(layout, path));
    if (!sources.empty() && file.bytes().size() != sources[0].bytes().size()) {
      const size_t record_bytes = layout.record_bytes();
      return absl::DataLossError(
          absl::StrCat(path, " contains ", file.bytes().size() / record_bytes, " images, but ",
                       sources[0].path(), " contains ", sources[0].bytes().size() / record_bytes));
    }
    sources.push_back(std::move(file));
  }
  return sources;
}

absl::Status CheckLabels(const Layout& layout, const MappedFile& source) {
  const absl::Span<const uint8_t> bytes = source.bytes();
  for (size_t record = 0; record < bytes.size() / layout.record_bytes(); ++record) {
    for (size_t i = 0; i < layout.label_classes.size(); ++i) {
      const int label = bytes[record * layout.record_bytes() + i];
      if (label < layout.label_classes[i]) continue;
      return absl::DataLossError(absl::StrCat(source.path(), ": label ", label, " of image ",
                                              record, " is out of range for ",
                                              layout.label_classes[i], " classes"));
    }
  }
  return absl::OkStatus();
}

void PlanesToHwc(const uint8_t* planes, uint8_t* hwc) {
  for (size_t i = 0; i < kPixels; ++i) {
    for (size_t channel = 0; channel < 3; ++channel) {
      hwc[3 * i + channel] = planes[channel * kPixels + i];
    }
  }
}

absl::Status Convert(const Layout& layout, const std::vector<MappedFile>& sources,
                     const NewCacheFile& target) {
  const size_t record_bytes = layout.record_bytes();
  std::vector<uint8_t> labels;
  std::vector<uint8_t> pixels(kImagesPerWrite * kImageBytes);
  for (const MappedFile& source : sources) {
    RETURN_IF_ERROR(CheckLabels(layout, source));
    const size_t images = source.bytes().size() / record_bytes;
    for (size_t first = 0; first < images; first += kImagesPerWrite) {
      const size_t count = std::min(kImagesPerWrite, images - first);
      for (size_t i = 0; i < count; ++i) {
        const uint8_t* planes =
            source.bytes().data() + (first + i) * record_bytes + layout.label_classes.size();
        labels.push_back(planes[-1]);
        PlanesToHwc(planes, pixels.data() + i * kImageBytes);
      }
      RETURN_IF_ERROR(target.contents.Append(absl::MakeSpan(pixels).first(count * kImageBytes)));
      target.report(labels.size());
    }
  }
  return target.contents.Append(labels);
}

absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar(const Layout& layout,
                                                        const DatasetInfo& info,
                                                        const std::string& path, Split split,
                                                        const Cache& cache) {
  std::vector<std::string> paths = layout.training_files;
  if (split == Split::kTest) paths = {layout.test_file};
  const std::string folder = FindFolder(layout, path);
  for (std::string& name : paths) name = absl::StrCat(folder, "/", name);
  ASSIGN_OR_RETURN(const std::vector<MappedFile> sources, OpenSources(layout, paths));
  const size_t images = sources.size() * sources[0].bytes().size() / layout.record_bytes();

  ASSIGN_OR_RETURN(const std::string cached, CachedName(info.name, paths, cache.dir));
  auto mapped = MapCacheFile(cached);
  if (!mapped.ok()) {
    // Missing or damaged.
    RETURN_IF_ERROR(MakeCacheFile(
        cached, "images converted", cache, [&] { return (mapped = MapCacheFile(cached)).ok(); },
        [&](const NewCacheFile& file) { return Convert(layout, sources, file); }));
    if (!mapped.ok()) mapped = MapCacheFile(cached);
  }
  RETURN_IF_ERROR(mapped.status());
  return std::make_unique<CifarDataset>(info, images, *std::move(mapped));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar10(const DatasetInfo& info,
                                                          const std::string& path, Split split,
                                                          const Cache& cache) {
  const Layout layout = {"cifar-10-batches-bin",
                         {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                          "data_batch_4.bin", "data_batch_5.bin"},
                         "test_batch.bin",
                         {10}};
  return OpenCifar(layout, info, path, split, cache);
}

absl::StatusOr<std::unique_ptr<ImageDataset>> OpenCifar100(const DatasetInfo& info,
                                                           const std::string& path, Split split,
                                                           const Cache& cache) {
  const Layout layout = {"cifar-100-binary", {"train.bin"}, "test.bin", {20, 100}};
  return OpenCifar(layout, info, path, split, cache);
}

}  // namespace muster::data
