// Safetensors files.
#include "trainer/checkpoint/safetensors.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/fuzz/check.h"

namespace {

constexpr int64_t kLongestRead = 8;  // values of the tensors that are read

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const absl::StatusOr<train::SafetensorsFile> file =
      train::SafetensorsFile::Parse("file", {data, data + size});
  if (!file.ok()) return 0;
  // Every tensor of one dimension that can be read must be written and read again as the same.
  std::vector<train::Tensor> tensors;
  for (const std::string& name : file->names()) {
    fuzz::Check(file->Contains(name), "tensors are found by name", name);
    for (int64_t count = 0; count <= kLongestRead; ++count) {
      absl::StatusOr<std::vector<float>> values = file->ReadFloats(name, {count});
      if (values.ok()) tensors.push_back({name, {count}, *std::move(values)});
    }
  }
  std::vector<uint8_t> written;
  fuzz::CheckOk(train::WriteSafetensors(tensors,
                                        [&written](absl::Span<const uint8_t> bytes) {
                                          written.insert(written.end(), bytes.begin(), bytes.end());
                                          return absl::OkStatus();
                                        }),
                "tensors that were read can be written");
  const absl::StatusOr<train::SafetensorsFile> copy =
      train::SafetensorsFile::Parse("copy", written);
  fuzz::CheckOk(copy.status(), "a written file can be read");
  for (const train::Tensor& tensor : tensors) {
    const absl::StatusOr<std::vector<float>> values = copy->ReadFloats(tensor.name, tensor.shape);
    fuzz::CheckOk(values.status(), "a written tensor can be read");
    const auto& expected = std::get<std::vector<float>>(tensor.values);
    // As bytes: NaN differs from itself.
    const auto bits = [](const std::vector<float>& floats) {
      return fuzz::Text(reinterpret_cast<const uint8_t*>(floats.data()),
                        floats.size() * sizeof(float));
    };
    fuzz::Check(bits(*values) == bits(expected), "a tensor is read as it was written", tensor.name);
  }
  return 0;
}
