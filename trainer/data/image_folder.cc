#include "trainer/data/image_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sha256.h"
#include "common/status.h"
#include "trainer/data/jpeg_decoder.h"

namespace muster::data {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

struct Entry {
  std::string name;
  bool is_folder = false;
  uint64_t size_bytes = 0;
};

// Lists a folder in byte order of the names, without hidden entries. Errors name the path.
absl::StatusOr<std::vector<Entry>> List(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", path));
  absl::Cleanup close_folder = [folder] { closedir(folder); };
  std::vector<Entry> entries;
  while (true) {
    errno = 0;
    const dirent* found = readdir(folder);
    if (found == nullptr) break;
    if (found->d_name[0] == '.') continue;
    struct stat info;
    if (fstatat(dirfd(folder), found->d_name, &info, 0) != 0) {
      return ErrnoStatus(errno, absl::StrCat("stat ", path, "/", found->d_name));
    }
    entries.push_back({found->d_name, S_ISDIR(info.st_mode), static_cast<uint64_t>(info.st_size)});
  }
  if (errno != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool EndsWithAny(absl::string_view name, absl::Span<const absl::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [name](absl::string_view suffix) {
    return absl::EndsWithIgnoreCase(name, suffix);
  });
}

bool IsJpeg(absl::string_view name) { return EndsWithAny(name, {".jpg", ".jpeg"}); }

// Whether the file is clearly not an image and is skipped.
bool IsIgnored(absl::string_view name) {
  return EndsWithAny(name, {".csv", ".db", ".html", ".ini", ".json", ".log", ".md", ".tsv", ".txt",
                            ".xml", ".yaml", ".yml"});
}

// Lists the names of the subfolders.
absl::StatusOr<std::vector<std::string>> ListClasses(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<Entry> entries, List(path));
  std::vector<std::string> classes;
  for (const Entry& entry : entries) {
    if (entry.is_folder) {
      classes.push_back(entry.name);
    } else if (!IsIgnored(entry.name)) {
      return absl::DataLossError(absl::StrCat(path, "/", entry.name, " is not in a class folder"));
    }
  }
  if (classes.empty()) {
    return absl::DataLossError(absl::StrCat(path, " has no class folders"));
  }
  return classes;
}

// Lists the images of one class folder.
absl::StatusOr<std::vector<Entry>> ListImages(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<Entry> entries, List(path));
  std::vector<Entry> images;
  for (Entry& entry : entries) {
    if (!entry.is_folder && IsJpeg(entry.name)) {
      images.push_back(std::move(entry));
    } else if (entry.is_folder || !IsIgnored(entry.name)) {
      return absl::DataLossError(
          absl::StrCat(path, "/", entry.name,
                       entry.is_folder ? " is a folder, not an image" : " is not a .jpg"));
    }
  }
  if (images.empty()) return absl::DataLossError(absl::StrCat(path, " contains no images"));
  return images;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

class ImageFolder final : public ImageDataset {
 public:
  // `path` is the folder of a split; `classes` are the classes of the training split.
  static absl::StatusOr<std::unique_ptr<ImageDataset>> Open(
      DatasetInfo info, const std::string& path, const std::vector<std::string>& classes);

  const DatasetInfo& info() const override { return info_; }
  size_t size() const override { return images_.size(); }
  int32_t label(size_t i) const override { return images_[i].label; }
  std::string Digest() const override { return digest_; }
  const uint8_t* image(size_t) const override { return nullptr; }
  std::unique_ptr<ImageReader> NewReader() const override;

  // CLASS/FILE relative to path().
  absl::string_view name(size_t i) const { return &names_[images_[i].name]; }
  const std::string& path() const { return path_; }

 private:
  struct ImageFile {
    uint64_t name;  // an offset in names_
    int32_t label;
  };

  ImageFolder(DatasetInfo info, std::string path)
      : info_(std::move(info)), path_(std::move(path)) {}

  DatasetInfo info_;
  std::string path_;
  // Concatenated, each with a terminating zero byte: half the memory of a million strings.
  std::string names_;
  std::vector<ImageFile> images_;
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
    DatasetInfo info, const std::string& path, const std::vector<std::string>& classes) {
  ASSIGN_OR_RETURN(const std::vector<std::string> present, ListClasses(path));
  auto folder = std::unique_ptr<ImageFolder>(new ImageFolder(std::move(info), path));
  folder->info_.classes = static_cast<int64_t>(classes.size());
  Sha256 digest;
  for (const std::string& name : classes) digest.Update(absl::StrCat(name, "/\n"));
  for (const std::string& name : present) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), name);
    if (found == classes.end() || *found != name) {
      return absl::DataLossError(
          absl::StrCat(path, "/", name, ": the training split has no such class"));
    }
    const auto label = static_cast<int32_t>(found - classes.begin());
    ASSIGN_OR_RETURN(const std::vector<Entry> images, ListImages(absl::StrCat(path, "/", name)));
    for (const Entry& image : images) {
      folder->images_.push_back({folder->names_.size(), label});
      absl::StrAppend(&folder->names_, name, "/", image.name, absl::string_view("\0", 1));
      digest.Update(absl::StrCat(name, "/", image.name, " ", image.size_bytes, "\n"));
    }
  }
  folder->names_.shrink_to_fit();
  folder->images_.shrink_to_fit();
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
                                                              const std::string& path,
                                                              Split split) {
  const std::string train = path + "/train";
  ASSIGN_OR_RETURN(const std::vector<std::string> classes, ListClasses(train));
  if (split == Split::kTrain) return ImageFolder::Open(info, train, classes);
  for (const char* name : {"/val", "/test"}) {
    if (IsFolder(path + name)) return ImageFolder::Open(info, path + name, classes);
  }
  return absl::NotFoundError(absl::StrCat(path, " has neither a folder val nor a folder test"));
}

}  // namespace muster::data
