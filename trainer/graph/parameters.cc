#include "trainer/graph/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "kernels/aligned_floats.h"
#include "kernels/philox.h"

namespace muster::nn {

namespace {

// Generates numbers four words at a time, in the order of the elements.
class PhiloxStream {
 public:
  explicit PhiloxStream(kernels::PhiloxKey key) : key_(key) {}

  uint32_t Next() {
    if (drawn_ % 4 == 0) {
      const uint64_t block = drawn_ / 4;
      words_ = kernels::Philox4x32(
          {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, key_);
    }
    return words_[drawn_++ % 4];
  }

 private:
  const kernels::PhiloxKey key_;
  kernels::PhiloxCounter words_{};
  uint64_t drawn_ = 0;
};

void FillUniform(PhiloxStream random, float bound, std::vector<float>& values) {
  for (float& value : values) value = bound * (2.0f * kernels::Uniform01(random.Next()) - 1.0f);
}

// Box & Muller 1958: two uniform numbers give two normal numbers.
void FillNormal(PhiloxStream random, double deviation, std::vector<float>& values) {
  constexpr double kUnit = 1.0 / 4294967296.0;
  for (size_t i = 0; i < values.size(); i += 2) {
    const double uniform = (random.Next() + 1.0) * kUnit;  // never zero
    const double angle = 2 * std::numbers::pi * kUnit * random.Next();
    const double radius = deviation * std::sqrt(-2 * std::log(uniform));
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace

void TensorLayout::Export(const float* flat, absl::Span<float> canonical) const {
  if (export_values) {
    export_values(flat, canonical.data());
  } else {
    std::copy_n(flat, canonical.size(), canonical.data());
  }
}

size_t FlatLayout::Add(std::string name, std::vector<int64_t> shape, const Initial& initial,
                       TensorLayout layout) {
  size_t canonical_elements = 1;
  for (const int64_t dimension : shape) canonical_elements *= static_cast<size_t>(dimension);
  const size_t offset = elements_;
  const size_t count =
      (layout.elements + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
  infos_.push_back(
      {.name = std::move(name), .shape = std::move(shape), .offset = offset, .count = count});
  entries_.push_back(
      {.initial = initial, .layout = std::move(layout), .canonical_elements = canonical_elements});
  elements_ += count;
  return offset;
}

bool FlatLayout::Has(absl::string_view name) const {
  return std::any_of(infos_.begin(), infos_.end(),
                     [name](const ParameterInfo& info) { return info.name == name; });
}

size_t FlatLayout::CanonicalElements(size_t begin, size_t end) const {
  size_t elements = 0;
  for (size_t i = 0; i < infos_.size(); ++i) {
    if (infos_[i].offset >= begin && infos_[i].offset < end) {
      elements += entries_[i].canonical_elements;
    }
  }
  return elements;
}

absl::StatusOr<size_t> FlatLayout::Find(const ParameterInfo& info, size_t values) const {
  for (size_t i = 0; i < infos_.size(); ++i) {
    if (infos_[i].name != info.name) continue;
    if (entries_[i].canonical_elements == values) return i;
    return absl::InvalidArgumentError(absl::StrCat(
        info.name, " has ", entries_[i].canonical_elements, " elements, got ", values));
  }
  return absl::InvalidArgumentError(absl::StrCat("the model has no parameter ", info.name));
}

void FlatLayout::ImportAt(size_t index, const float* values, kernels::Device& device,
                          float* flat) const {
  const Entry& entry = entries_[index];
  // Conversions may require the alignment of device memory. The padding remains zero.
  const kernels::AlignedFloats tensor = kernels::MakeAlignedFloats(infos_[index].count);
  if (entry.layout.import_values) {
    entry.layout.import_values(values, tensor.get());
  } else {
    std::copy_n(values, entry.canonical_elements, tensor.get());
  }
  device.CopyToDevice(flat + infos_[index].offset, tensor.get(),
                      infos_[index].count * sizeof(float));
}

absl::Status FlatLayout::Import(kernels::Device& device, float* flat, const ParameterInfo& info,
                                absl::Span<const float> values) const {
  ASSIGN_OR_RETURN(const size_t index, Find(info, values.size()));
  ImportAt(index, values.data(), device, flat);
  return absl::OkStatus();
}

absl::Status FlatLayout::Export(kernels::Device& device, const float* flat,
                                const ParameterInfo& info, absl::Span<float> values) const {
  ASSIGN_OR_RETURN(const size_t index, Find(info, values.size()));
  const float* const tensor = flat + infos_[index].offset;
  if (device.host_memory()) {
    entries_[index].layout.Export(tensor, values);
    return absl::OkStatus();
  }
  const kernels::AlignedFloats copy = kernels::MakeAlignedFloats(infos_[index].count);
  device.CopyToHost(copy.get(), tensor, infos_[index].count * sizeof(float));
  entries_[index].layout.Export(copy.get(), values);
  return absl::OkStatus();
}

absl::Status FlatLayout::ExportTensor(const float* tensor, const ParameterInfo& info,
                                      absl::Span<float> values) const {
  ASSIGN_OR_RETURN(const size_t index, Find(info, values.size()));
  entries_[index].layout.Export(tensor, values);
  return absl::OkStatus();
}

void FlatLayout::Initialize(uint64_t seed, kernels::Device& device, float* flat) const {
  std::vector<float> values;
  for (size_t index = 0; index < infos_.size(); ++index) {
    const Initial& initial = entries_[index].initial;
    const PhiloxStream random(kernels::DerivePhiloxKey(seed, HashOf(infos_[index].name)));
    values.resize(entries_[index].canonical_elements);
    switch (initial.kind) {
      case Initial::Kind::kConstant:
        std::fill(values.begin(), values.end(), static_cast<float>(initial.size));
        break;
      case Initial::Kind::kUniform:
        FillUniform(random, static_cast<float>(initial.size), values);
        break;
      case Initial::Kind::kNormal:
        FillNormal(random, initial.size, values);
        break;
    }
    ImportAt(index, values.data(), device, flat);
  }
}

std::string FlatLayout::Describe() const {
  std::string text;
  for (size_t i = 0; i < infos_.size(); ++i) {
    absl::StrAppend(&text, infos_[i].name, " [", absl::StrJoin(infos_[i].shape, ","), "] at ",
                    infos_[i].offset, " + ", infos_[i].count, ": ", entries_[i].layout.name, "\n");
  }
  return text;
}

uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace muster::nn
