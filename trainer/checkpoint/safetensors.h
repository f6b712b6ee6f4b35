// The safetensors format: named arrays in one file, as https://github.com/huggingface/safetensors
// describes it.
//
//   8 bytes  length of the header, little-endian      then the header, JSON:
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}, padded with blanks to
//   a multiple of 8 then the arrays, little-endian, in row-major order, without gaps; offsets count
//   from the header's end.
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
// value.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};

// Takes a file's next bytes.
using ByteSink = std::function<absl::Status(absl::Span<const uint8_t>)>;

// Writes the tensors in the order given. INVALID_ARGUMENT for two of the same name or a shape that
// does not fit its values; otherwise what the sink says.
absl::Status WriteSafetensors(absl::Span<const Tensor> tensors, const ByteSink& sink);

// A file of any origin, mapped and checked; reading does not copy what is not asked for.
class SafetensorsFile {
 public:
  // NOT_FOUND and other codes as errno says; DATA_LOSS, naming the path, for anything that the
  // format does not allow: no offset is believed that has not been checked.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // What such a file holds; `path` is for messages. DATA_LOSS.
  static absl::StatusOr<SafetensorsFile> Parse(const std::string& path,
                                               std::vector<uint8_t> contents);

  const std::string& path() const { return path_; }
  absl::Span<const uint8_t> bytes() const {
    return contents_.empty() ? file_.bytes() : absl::MakeConstSpan(contents_);
  }
  std::vector<std::string> names() const;
  bool Contains(absl::string_view name) const;
  // Of dtype F32, or F16, BF16 and F64, which are converted. NOT_FOUND for an unknown name,
  // INVALID_ARGUMENT for a tensor of another dtype or shape, which says both shapes.
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
  // One of them.
  data::MappedFile file_;
  std::vector<uint8_t> contents_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_SAFETENSORS_H_
