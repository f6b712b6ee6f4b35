// The flat array of a plan's parameters (or buffers): the offsets of its tensors, and import and
// export of their values.
#ifndef MUSTER_TRAINER_GRAPH_PARAMETERS_H_
#define MUSTER_TRAINER_GRAPH_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/graph/plan.h"

namespace muster::nn {

// Initial values of a tensor.
struct Initial {
  enum class Kind { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  double size = 0;

  static Initial Constant(double value) { return {Kind::kConstant, value}; }
  static Initial Uniform(double bound) { return {Kind::kUniform, bound}; }  // [-bound, bound)
  static Initial Normal(double deviation) { return {Kind::kNormal, deviation}; }
};

// Memory layout that a kernel needs. The conversions write every element of their output; null
// conversions mean that the layout is the canonical order.
struct TensorLayout {
  std::string name;  // layouts with equal names have equal bytes
  size_t elements = 0;
  std::function<void(const float* canonical, float* flat)> import_values;
  std::function<void(const float* flat, float* canonical)> export_values;

  // Converts `flat` to the canonical order.
  void Export(const float* flat, absl::Span<float> canonical) const;
};

class FlatLayout {
 public:
  // Each tensor starts on a multiple of this many elements (64 bytes).
  static constexpr size_t kAlignedElements = 16;

  // Returns the tensor's offset.
  size_t Add(std::string name, std::vector<int64_t> shape, const Initial& initial,
             TensorLayout layout);

  const std::vector<ParameterInfo>& infos() const { return infos_; }
  size_t elements() const { return elements_; }
  bool Has(absl::string_view name) const;
  // Elements of the tensors in [begin, end) of the flat array, without padding.
  size_t CanonicalElements(size_t begin, size_t end) const;

  // Converts between `flat` in device memory and `values` in host memory. `info` is one of infos()
  // or equal to one. INVALID_ARGUMENT for an unknown name or a wrong number of values.
  absl::Status Import(kernels::Device& device, float* flat, const ParameterInfo& info,
                      absl::Span<const float> values) const;
  absl::Status Export(kernels::Device& device, const float* flat, const ParameterInfo& info,
                      absl::Span<float> values) const;
  // Converts the tensor's info.count elements at `tensor`, anywhere in host memory, aligned to 64
  // bytes. Thread-safe.
  absl::Status ExportTensor(const float* tensor, const ParameterInfo& info,
                            absl::Span<float> values) const;
  // Drawn by Philox from (seed, name).
  void Initialize(uint64_t seed, kernels::Device& device, float* flat) const;

  // One line per tensor with everything that determines the bytes of the flat array.
  std::string Describe() const;

 private:
  struct Entry {
    Initial initial;
    TensorLayout layout;
    size_t canonical_elements;
  };
  // The tensor's index; INVALID_ARGUMENT if it is unknown or does not have `values` elements.
  absl::StatusOr<size_t> Find(const ParameterInfo& info, size_t values) const;
  void ImportAt(size_t index, const float* values, kernels::Device& device, float* flat) const;

  std::vector<ParameterInfo> infos_;
  std::vector<Entry> entries_;  // like infos_
  size_t elements_ = 0;
};

// FNV-1a, 64 bits.
uint64_t HashOf(absl::string_view text);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PARAMETERS_H_
