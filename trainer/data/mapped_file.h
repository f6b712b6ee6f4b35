// A read-only memory-mapped file.
#ifndef MUSTER_TRAINER_DATA_MAPPED_FILE_H_
#define MUSTER_TRAINER_DATA_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster::data {

// Movable; the bytes keep their address until the object that owns them is destroyed. Safe to read
// from any thread.
class MappedFile {
 public:
  // Errors name the path: NOT_FOUND, PERMISSION_DENIED and others from errno; FAILED_PRECONDITION
  // for a folder.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_MAPPED_FILE_H_
