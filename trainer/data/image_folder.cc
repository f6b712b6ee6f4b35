#include "trainer/data/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "common/status.h"
#include "trainer/data/folder_index.h"
#include "trainer/data/jpeg_decoder.h"

namespace muster::data {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

class ImageFolder final : public ImageDataset {
 public:
  // `path` is the folder of a split; `classes` are the classes of the training split.
  static absl::StatusOr<std::unique_ptr<ImageDataset>> Open(DatasetInfo info,
                                                            const std::string& path,
                                                            const std::vector<std::string>& classes,
                                                            const Cache& cache);

  const DatasetInfo& info() const override { return info_; }
  size_t size() const override { return labels_.size(); }
  int32_t label(size_t i) const override { return labels_[i]; }
  std::string Digest() const override { return digest_; }
  const uint8_t* image(size_t) const override { return nullptr; }
  std::unique_ptr<ImageReader> NewReader() const override;

  // CLASS/FILE relative to path().
  absl::string_view name(size_t i) const { return index_.name(i); }
  const std::string& path() const { return path_; }

 private:
  ImageFolder(DatasetInfo info, std::string path, FolderIndex index)
      : info_(std::move(info)), path_(std::move(path)), index_(std::move(index)) {}

  DatasetInfo info_;
  std::string path_;
  const FolderIndex index_;
  std::vector<int32_t> labels_;
  std::string digest_;
};

class FolderReader final : public ImageReader {
 public:
  explicit FolderReader(const ImageFolder* folder) : folder_(folder) {}

  absl::StatusOr<ImageSize> Open(size_t sample) override;
  absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least) override;

 private:
  absl::Status ReadFile();

  const ImageFolder* const folder_;
  JpegDecoder decoder_;
  // State of the opened image; members, so that their memory is reused.
  std::string path_;
  std::vector<uint8_t> buffer_;
  size_t size_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<ImageDataset>> ImageFolder::Open(
    DatasetInfo info, const std::string& path, const std::vector<std::string>& classes,
    const Cache& cache) {
  ASSIGN_OR_RETURN(FolderIndex opened, FolderIndex::Open(path, cache));
  auto folder =
      std::unique_ptr<ImageFolder>(new ImageFolder(std::move(info), path, std::move(opened)));
  const FolderIndex& index = folder->index_;
  folder->info_.classes = static_cast<int64_t>(classes.size());
  folder->labels_.reserve(index.size());
  Sha256 digest;
  for (const std::string& name : classes) digest.Update(absl::StrCat(name, "/\n"));
  for (const FolderIndex::Class& present : index.classes()) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), present.name);
    if (found == classes.end() || *found != present.name) {
      return absl::DataLossError(
          absl::StrCat(path, "/", present.name, ": the training split has no such class"));
    }
    folder->labels_.insert(folder->labels_.end(), present.images,
                           static_cast<int32_t>(found - classes.begin()));
  }
  for (size_t i = 0; i < index.size(); ++i) {
    digest.Update(absl::StrCat(index.name(i), " ", index.size_bytes(i), "\n"));
  }
  folder->digest_ = digest.HexDigest();
  return folder;
}

std::unique_ptr<ImageReader> ImageFolder::NewReader() const {
  return std::make_unique<FolderReader>(this);
}

absl::StatusOr<ImageSize> FolderReader::Open(size_t sample) {
  path_.clear();
  absl::StrAppend(&path_, folder_->path(), "/", folder_->name(sample));
  RETURN_IF_ERROR(ReadFile());
  auto size = decoder_.Open(absl::MakeConstSpan(buffer_).first(size_bytes_));
  if (!size.ok()) return Annotate(size.status(), path_);
  return size;
}

absl::StatusOr<DecodedRegion> FolderReader::Decode(const Region& wanted, ImageSize at_least) {
  auto decoded = decoder_.Decode(wanted, at_least);
  if (!decoded.ok()) return Annotate(decoded.status(), path_);
  return decoded;
}

// Reads rather than maps the file: a mapping would raise SIGBUS if the file were truncated.
absl::Status FolderReader::ReadFile() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path_));
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path_));
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (file_bytes > kMaxFileBytes) {
    return absl::DataLossError(
        absl::StrCat(path_, " has ", file_bytes, " bytes, more than ", kMaxFileBytes));
  }
  if (buffer_.size() < file_bytes) buffer_.resize(file_bytes);
  size_bytes_ = 0;
  while (size_bytes_ < file_bytes) {
    const ssize_t count = read(fd, buffer_.data() + size_bytes_, file_bytes - size_bytes_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("read ", path_));
    if (count == 0) break;  // truncated in the meantime, which the decoder will detect
    size_bytes_ += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageDataset>> OpenImageFolder(const DatasetInfo& info,
                                                              const std::string& path, Split split,
                                                              const Cache& cache) {
  const std::string train = path + "/train";
  ASSIGN_OR_RETURN(const std::vector<std::string> classes, ListClasses(train));
  if (split == Split::kTrain) return ImageFolder::Open(info, train, classes, cache);
  for (const char* name : {"/val", "/test"}) {
    if (IsFolder(path + name)) return ImageFolder::Open(info, path + name, classes, cache);
  }
  return absl::NotFoundError(absl::StrCat(path, " has neither a folder val nor a folder test"));
}

}  // namespace muster::data
