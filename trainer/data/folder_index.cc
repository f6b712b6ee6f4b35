#include "trainer/data/folder_index.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/sha256.h"
#include "common/status.h"
#include "glog/logging.h"

namespace muster::data {
namespace {

constexpr char kUnit[] = "files indexed";
constexpr uint64_t kFilesPerReport = 64;
// A folder that was modified this shortly before it was listed may have been modified again with
// the same time: file systems count in steps of up to two seconds.
constexpr absl::Duration kModificationStep = absl::Seconds(2);

// The cached file: a header, an entry per folder (the first is the split's own), an entry per
// image, and the names. Numbers as in memory: the file does not leave the machine.
constexpr uint64_t kMagic = 0x3158444e494d554d;  // "MUMINDX1"
struct Header {
  uint64_t magic = kMagic;
  int64_t scanned_unix_ns = 0;
  uint64_t folders = 0;
  uint64_t images = 0;
  uint64_t names_bytes = 0;
};
struct FolderEntry {
  uint64_t name;  // offset in the names
  uint64_t images;
  int64_t modified_ns;
};

int64_t ModifiedNs(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

struct Entry {
  std::string name;
  bool is_folder = false;
  uint64_t size_bytes = 0;
};

struct Listing {
  int64_t modified_ns = 0;  // time of the folder, before it was read
  std::vector<Entry> entries;
};

// Counts files and reports the number.
class FileCounter {
 public:
  explicit FileCounter(std::function<void(uint64_t)> report) : report_(std::move(report)) {}
  void Add() {
    if (++files_ % kFilesPerReport == 0) report_(files_);
  }

 private:
  const std::function<void(uint64_t)> report_;
  uint64_t files_ = 0;
};

// Lists a folder in byte order of the names, without hidden entries. Errors name the path.
absl::StatusOr<Listing> List(const std::string& path, FileCounter& counter) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", path));
  absl::Cleanup close_folder = [folder] { closedir(folder); };
  Listing listing;
  struct stat info;
  if (fstat(dirfd(folder), &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  listing.modified_ns = ModifiedNs(info);
  while (true) {
    errno = 0;
    const dirent* found = readdir(folder);
    if (found == nullptr) break;
    if (found->d_name[0] == '.') continue;
    if (fstatat(dirfd(folder), found->d_name, &info, 0) != 0) {
      return ErrnoStatus(errno, absl::StrCat("stat ", path, "/", found->d_name));
    }
    listing.entries.push_back(
        {found->d_name, S_ISDIR(info.st_mode), static_cast<uint64_t>(info.st_size)});
    counter.Add();
  }
  if (errno != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  std::sort(listing.entries.begin(), listing.entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return listing;
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

absl::StatusOr<std::vector<std::string>> ClassesIn(const std::string& path,
                                                   const std::vector<Entry>& entries) {
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

// Removes what is not an image from the entries of a class folder.
absl::Status KeepImages(const std::string& path, std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    if (entry.is_folder || (!IsJpeg(entry.name) && !IsIgnored(entry.name))) {
      return absl::DataLossError(
          absl::StrCat(path, "/", entry.name,
                       entry.is_folder ? " is a folder, not an image" : " is not a .jpg"));
    }
  }
  const auto is_ignored = [](const Entry& entry) { return !IsJpeg(entry.name); };
  entries.erase(std::remove_if(entries.begin(), entries.end(), is_ignored), entries.end());
  if (entries.empty()) return absl::DataLossError(absl::StrCat(path, " contains no images"));
  return absl::OkStatus();
}

template <typename T>
void AppendBytes(const T* values, size_t count, std::vector<uint8_t>& bytes) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(values);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(T));
}

// Lists the folder and returns the contents of the cached file.
template <typename ImageEntry>
absl::StatusOr<std::vector<uint8_t>> Build(const std::string& path, FileCounter counter) {
  Header header;
  header.scanned_unix_ns = absl::ToUnixNanos(absl::Now());
  std::vector<FolderEntry> folders;
  std::vector<ImageEntry> images;
  std::string names(1, '\0');  // the split's own name is empty
  ASSIGN_OR_RETURN(const Listing top, List(path, counter));
  ASSIGN_OR_RETURN(const std::vector<std::string> classes, ClassesIn(path, top.entries));
  folders.push_back({0, 0, top.modified_ns});
  for (const std::string& name : classes) {
    const std::string folder = absl::StrCat(path, "/", name);
    ASSIGN_OR_RETURN(Listing listing, List(folder, counter));
    RETURN_IF_ERROR(KeepImages(folder, listing.entries));
    folders.push_back({names.size(), listing.entries.size(), listing.modified_ns});
    absl::StrAppend(&names, name, absl::string_view("\0", 1));
    for (const Entry& image : listing.entries) {
      images.push_back({names.size(), image.size_bytes});
      absl::StrAppend(&names, name, "/", image.name, absl::string_view("\0", 1));
    }
  }
  header.folders = folders.size();
  header.images = images.size();
  header.names_bytes = names.size();
  std::vector<uint8_t> bytes;
  AppendBytes(&header, 1, bytes);
  AppendBytes(folders.data(), folders.size(), bytes);
  AppendBytes(images.data(), images.size(), bytes);
  AppendBytes(names.data(), names.size(), bytes);
  return bytes;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListClasses(const std::string& path) {
  FileCounter unreported([](uint64_t) {});
  ASSIGN_OR_RETURN(const Listing listing, List(path, unreported));
  return ClassesIn(path, listing.entries);
}

absl::Status FolderIndex::Parse(absl::Span<const uint8_t> bytes) {
  Header header;
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  if (bytes.size() < sizeof(header) || header.magic != kMagic) {
    return absl::DataLossError("not a folder index");
  }
  // Build has written the numbers and offsets: the digest of the cached file proves it.
  const uint8_t* position = bytes.data() + sizeof(header);
  const auto* const folders = reinterpret_cast<const FolderEntry*>(position);
  position += header.folders * sizeof(FolderEntry);
  images_ = {reinterpret_cast<const ImageEntry*>(position), header.images};
  position += header.images * sizeof(ImageEntry);
  names_ = reinterpret_cast<const char*>(position);
  scanned_unix_ns_ = header.scanned_unix_ns;
  size_t first = 0;
  for (size_t i = 0; i < header.folders; ++i) {
    modified_ns_.push_back(folders[i].modified_ns);
    if (i == 0) continue;
    classes_.push_back({names_ + folders[i].name, first, folders[i].images});
    first += folders[i].images;
  }
  return absl::OkStatus();
}

absl::StatusOr<FolderIndex> FolderIndex::Parse(std::vector<uint8_t> bytes) {
  FolderIndex index;
  index.built_ = std::move(bytes);
  RETURN_IF_ERROR(index.Parse(absl::MakeConstSpan(index.built_)));
  return index;
}

absl::StatusOr<FolderIndex> FolderIndex::Map(const std::string& file, const std::string& path) {
  FolderIndex index;
  ASSIGN_OR_RETURN(index.file_, MapCacheFile(file));
  RETURN_IF_ERROR(index.Parse(index.file_.bytes()));
  RETURN_IF_ERROR(index.CheckUnchanged(path));
  return index;
}

absl::Status FolderIndex::CheckUnchanged(const std::string& path) const {
  const int64_t newest_ns = scanned_unix_ns_ - absl::ToInt64Nanoseconds(kModificationStep);
  for (size_t i = 0; i < modified_ns_.size(); ++i) {
    const std::string folder = i == 0 ? path : absl::StrCat(path, "/", classes_[i - 1].name);
    struct stat info;
    if (stat(folder.c_str(), &info) != 0 || ModifiedNs(info) != modified_ns_[i] ||
        modified_ns_[i] > newest_ns) {
      return absl::FailedPreconditionError(absl::StrCat(folder, " has changed"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FolderIndex> FolderIndex::Open(const std::string& path, const Cache& cache) {
  const auto build = [&](const std::function<void(uint64_t)>& report) {
    return Build<ImageEntry>(path, FileCounter(report));
  };
  const auto build_alone = [&]() -> absl::StatusOr<FolderIndex> {
    ASSIGN_OR_RETURN(std::vector<uint8_t> bytes,
                     build([&cache](uint64_t files) { cache.Report(files, kUnit); }));
    return Parse(std::move(bytes));
  };
  const std::unique_ptr<char, void (*)(void*)> resolved(realpath(path.c_str(), nullptr), &free);
  if (cache.dir.empty() || resolved == nullptr) return build_alone();

  const std::string target =
      absl::StrCat(cache.dir, "/folder-", Sha256Hex(resolved.get()).substr(0, 32));
  absl::StatusOr<FolderIndex> index = Map(target, path);
  if (index.ok()) return index;
  absl::Status listed;
  std::optional<std::vector<uint8_t>> built;
  const absl::Status made = MakeCacheFile(
      target, kUnit, cache, [&] { return (index = Map(target, path)).ok(); },
      [&](const NewCacheFile& file) -> absl::Status {
        absl::StatusOr<std::vector<uint8_t>> bytes = build(file.report);
        listed = bytes.status();
        RETURN_IF_ERROR(listed);
        built = *std::move(bytes);
        return file.contents.Append(*built);
      });
  RETURN_IF_ERROR(listed);
  LOG_IF(WARNING, !made.ok()) << "cannot keep the index of " << path << ": " << made.message();
  if (built.has_value()) return Parse(*std::move(built));
  return index.ok() ? std::move(index) : build_alone();
}

}  // namespace muster::data
