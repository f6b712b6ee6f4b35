// The IDX format of MNIST and its kin: a big-endian header, then unsigned bytes.
//
//   byte 0, 1  zero      byte 2  type (8: unsigned byte)      byte 3  number of dimensions
//   then the dimensions, four bytes each, then the elements, last dimension fastest.
#ifndef MUSTER_TRAINER_DATA_IDX_H_
#define MUSTER_TRAINER_DATA_IDX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/data/mapped_file.h"

namespace muster::data {

struct IdxHeader {
  std::vector<uint32_t> dimensions;
  size_t header_bytes = 0;
  size_t file_bytes = 0;  // header and elements
};

// The longest header that is accepted: four dimensions.
inline constexpr size_t kMaxIdxHeaderBytes = 4 + 4 * 4;

// Reads the header from a file's first bytes. DATA_LOSS, naming `path`, for fewer bytes than the
// header takes, another type of element, no or too many dimensions, or a size beyond 2^40 bytes.
absl::StatusOr<IdxHeader> ParseIdxHeader(absl::Span<const uint8_t> bytes, absl::string_view path);

// One array, mapped. Movable; safe to read from any thread.
class IdxFile {
 public:
  // Opens `path`, or `path`.gz where only that exists. A compressed file is unpacked once into
  // cache_dir, under a name made of the source's path, size and time, and mapped from there;
  // several processes that come together unpack it once. Errors: NOT_FOUND names the path;
  // DATA_LOSS names it and says how many bytes are missing, or what is wrong.
  static absl::StatusOr<IdxFile> Open(const std::string& path, const std::string& cache_dir);

  absl::Span<const uint32_t> dimensions() const { return header_.dimensions; }
  absl::Span<const uint8_t> elements() const { return file_.bytes().subspan(header_.header_bytes); }
  // The file that was asked for, for messages.
  const std::string& source() const { return source_; }

 private:
  IdxFile(std::string source, IdxHeader header, MappedFile file);

  std::string source_;
  IdxHeader header_;
  MappedFile file_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_IDX_H_
