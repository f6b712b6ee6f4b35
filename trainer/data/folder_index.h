// Index of one split of an image folder: its classes, and the names and sizes of their images.
//
// Listing a large folder takes long, above all on a network file system. The index is therefore
// made once per machine, by the first process that takes a lock, and kept in the cache directory:
// other processes map it, and later jobs reuse it. It is made anew if a folder has changed, which
// its modification time shows: files were added, removed or renamed. A file that is overwritten in
// place is not noticed; only the recorded size, and with it the dataset's digest, is then
// outdated.
#ifndef MUSTER_TRAINER_DATA_FOLDER_INDEX_H_
#define MUSTER_TRAINER_DATA_FOLDER_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/data/cache_file.h"
#include "trainer/data/mapped_file.h"

namespace muster::data {

// Names of the class folders in `path`, sorted as bytes. NOT_FOUND; DATA_LOSS for no class and for
// an unexpected file. Errors name the path.
absl::StatusOr<std::vector<std::string>> ListClasses(const std::string& path);

// Movable; safe to read from any thread.
class FolderIndex {
 public:
  // Folder CLASS with the images [first, first + images).
  struct Class {
    absl::string_view name;
    size_t first = 0;
    size_t images = 0;
  };

  // Indexes `path`, whose subfolders are the classes. Reports the number of files indexed. Without
  // a usable cache directory, indexes for this process only. NOT_FOUND if a folder does not exist;
  // DATA_LOSS for no class, a class without images, and unexpected files or folders. Errors name
  // the path.
  static absl::StatusOr<FolderIndex> Open(const std::string& path, const Cache& cache);

  const std::vector<Class>& classes() const { return classes_; }  // sorted by name
  size_t size() const { return images_.size(); }
  // CLASS/FILE, zero-terminated; a class's images are sorted by name.
  const char* name(size_t i) const { return names_ + images_[i].name; }
  uint64_t size_bytes(size_t i) const { return images_[i].size_bytes; }

 private:
  struct ImageEntry {
    uint64_t name;  // offset in the names
    uint64_t size_bytes;
  };

  FolderIndex() = default;
  // Reads an index that Serialize has written. DATA_LOSS.
  absl::Status Parse(absl::Span<const uint8_t> bytes);
  static absl::StatusOr<FolderIndex> Parse(std::vector<uint8_t> bytes);
  // Maps the index in `file`. FAILED_PRECONDITION if a folder of `path` has changed since.
  static absl::StatusOr<FolderIndex> Map(const std::string& file, const std::string& path);
  absl::Status CheckUnchanged(const std::string& path) const;

  // The entries below are in one of the two.
  MappedFile file_;
  std::vector<uint8_t> built_;

  int64_t scanned_unix_ns_ = 0;       // start of the listing
  std::vector<int64_t> modified_ns_;  // times of the folder itself, then of each class
  std::vector<Class> classes_;
  absl::Span<const ImageEntry> images_;
  const char* names_ = nullptr;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_FOLDER_INDEX_H_
