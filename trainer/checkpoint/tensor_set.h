// Reads named tensors from one safetensors file or from several files with an index, as other
// programs write them, too:
//
//   model-00001-of-00002.safetensors
//   model-00002-of-00002.safetensors
//   model.safetensors.index.json       {"metadata": {"total_size": 40},
//                                       "weight_map": {"w": "model-00001-of-00002.safetensors", …}}
#ifndef MUSTER_TRAINER_CHECKPOINT_TENSOR_SET_H_
#define MUSTER_TRAINER_CHECKPOINT_TENSOR_SET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/checkpoint/safetensors.h"

namespace muster::train {

// Whether the safetensors file `path` or its index exists.
bool TensorsExist(const std::string& path);

// Movable. Only requested tensors are copied.
class TensorSet {
 public:
  // `path`: a safetensors file, an index, or the folder of a checkpoint, whose model is read. If
  // the file does not exist, its index is read. Returns SafetensorsFile::Open's errors; DATA_LOSS
  // with the path if the index is malformed or does not match the files.
  static absl::StatusOr<TensorSet> Open(const std::string& path);
  // `path` is used in messages. DATA_LOSS if two files have the same tensor.
  static absl::StatusOr<TensorSet> Create(std::string path, std::vector<SafetensorsFile> files);

  const std::string& path() const { return path_; }
  absl::Span<const SafetensorsFile> files() const { return files_; }
  std::vector<std::string> names() const;
  bool Contains(absl::string_view name) const { return file_of_.find(name) != file_of_.end(); }
  // NOT_FOUND for an unknown name; otherwise as SafetensorsFile::ReadFloats.
  absl::StatusOr<std::vector<float>> ReadFloats(absl::string_view name,
                                                absl::Span<const int64_t> shape) const;

 private:
  static absl::StatusOr<TensorSet> OpenIndex(const std::string& path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> file_of_;  // position in files_, by tensor
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_TENSOR_SET_H_
