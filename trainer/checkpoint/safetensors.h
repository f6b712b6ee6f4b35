// Reads and writes safetensors files (https://github.com/huggingface/safetensors), which contain
// named arrays.
//
//   8 bytes   length of the header, little-endian
//   header    JSON, padded with spaces to a multiple of 8:
//             {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
//   arrays    little-endian, row-major, without gaps; offsets count from the end of the header
#ifndef MUSTER_TRAINER_CHECKPOINT_SAFETENSORS_H_
#define MUSTER_TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/data/mapped_file.h"

namespace muster::train {

// dtype F32 or I64. The number of values is the product of the shape; no dimensions is a single
// value. A span refers to values that another object owns.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>, absl::Span<const float>> values;
};

// Receives the next bytes of a file.
using ByteSink = std::function<absl::Status(absl::Span<const uint8_t>)>;

// Writes the tensors in the given order. INVALID_ARGUMENT for duplicate names or a shape that does
// not match the number of values; otherwise the sink's errors.
absl::Status WriteSafetensors(absl::Span<const Tensor> tensors, const ByteSink& sink);

// A memory-mapped, validated file from any source; only requested tensors are copied.
class SafetensorsFile {
 public:
  // Returns the error of errno; DATA_LOSS with the path if the file violates the format. All
  // offsets are validated.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // Parses the contents of a file; `path` is used in messages. DATA_LOSS.
  static absl::StatusOr<SafetensorsFile> Parse(const std::string& path,
                                               std::vector<uint8_t> contents);

  const std::string& path() const { return path_; }
  absl::Span<const uint8_t> bytes() const {
    return contents_.empty() ? file_.bytes() : absl::MakeConstSpan(contents_);
  }
  std::vector<std::string> names() const;
  bool Contains(absl::string_view name) const;
  // Reads a tensor of dtype F32, or F16, BF16 or F64, which are converted. NOT_FOUND for an unknown
  // name; INVALID_ARGUMENT with both shapes for another dtype or shape.
  absl::StatusOr<std::vector<float>> ReadFloats(absl::string_view name,
                                                absl::Span<const int64_t> shape) const;

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    absl::Span<const uint8_t> bytes;
  };
  SafetensorsFile(std::string path, data::MappedFile file, std::vector<uint8_t> contents);
  absl::Status ParseHeader();

  std::string path_;
  // Only one of the two is used.
  data::MappedFile file_;
  std::vector<uint8_t> contents_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_SAFETENSORS_H_
