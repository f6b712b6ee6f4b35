// The IDX format of MNIST and similar datasets: a big-endian header, then unsigned bytes.
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
#include "trainer/data/cache_file.h"
#include "trainer/data/mapped_file.h"

namespace muster::data {

struct IdxHeader {
  std::vector<uint32_t> dimensions;
  size_t header_bytes = 0;
  size_t file_bytes = 0;  // header and elements
};

// The longest accepted header: four dimensions.
inline constexpr size_t kMaxIdxHeaderBytes = 4 + 4 * 4;

// Parses the header from a file's first bytes. DATA_LOSS names `path`: fewer bytes than the header
// needs, another element type, no or too many dimensions, or a size above 2^40 bytes.
absl::StatusOr<IdxHeader> ParseIdxHeader(absl::Span<const uint8_t> bytes, absl::string_view path);

// One memory-mapped array. Movable; safe to read from any thread.
class IdxFile {
 public:
  // Opens `path`, or `path`.gz if only that exists. A compressed file is unpacked once into
  // the cache, under a name derived from the source's path, size and time, and mapped from there;
  // concurrent processes unpack it only once. NOT_FOUND names the path; DATA_LOSS names it with the
  // number of missing bytes or the defect.
  static absl::StatusOr<IdxFile> Open(const std::string& path, const Cache& cache);

  absl::Span<const uint32_t> dimensions() const { return header_.dimensions; }
  absl::Span<const uint8_t> elements() const {
    return file_.bytes().subspan(header_.header_bytes, header_.file_bytes - header_.header_bytes);
  }
  // The requested file, for messages.
  const std::string& source() const { return source_; }

 private:
  IdxFile(std::string source, IdxHeader header, MappedFile file);

  std::string source_;
  IdxHeader header_;
  MappedFile file_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_IDX_H_
