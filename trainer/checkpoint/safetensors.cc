#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::train {
namespace {

using Json = nlohmann::ordered_json;

// Limit of the reference implementation.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

size_t BytesPerElement(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

// Size of an array in bytes; empty if it exceeds 62 bits or a dimension is negative.
std::optional<uint64_t> ArrayBytes(absl::Span<const int64_t> shape, size_t bytes_per_element) {
  uint64_t bytes = bytes_per_element;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    if (dimension != 0 && bytes > (uint64_t{1} << 62) / static_cast<uint64_t>(dimension)) {
      return std::nullopt;
    }
    bytes *= static_cast<uint64_t>(dimension);
  }
  return bytes;
}

absl::Span<const uint8_t> BytesOf(const Tensor& tensor) {
  return std::visit(
      [](const auto& values) {
        return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(values.data()),
                                   values.size() * sizeof(values[0]));
      },
      tensor.values);
}

absl::string_view DtypeOf(const Tensor& tensor) {
  return std::holds_alternative<std::vector<int64_t>>(tensor.values) ? "I64" : "F32";
}

std::optional<std::vector<int64_t>> ParseIntegers(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Json& item : json) {
    if (!item.is_number_integer()) return std::nullopt;
    integers.push_back(item.get<int64_t>());
  }
  return integers;
}

// Loads an unaligned little-endian value; assumes a little-endian host.
template <typename Value>
Value Load(const uint8_t* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Converts IEEE 754 binary16: 5 exponent bits, 10 mantissa bits.
float FromHalf(uint16_t half) {
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 0x1f) {
    return sign * (mantissa == 0 ? std::numeric_limits<float>::infinity()
                                 : std::numeric_limits<float>::quiet_NaN());
  }
  return sign * std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
}

// bfloat16 is the upper half of a float.
float FromBfloat16(uint16_t half) { return absl::bit_cast<float>(uint32_t{half} << 16); }

template <typename Value, typename Convert>
std::vector<float> ConvertAll(absl::Span<const uint8_t> bytes, const Convert& convert) {
  std::vector<float> values(bytes.size() / sizeof(Value));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = convert(Load<Value>(bytes.data() + i * sizeof(Value)));
  }
  return values;
}

}  // namespace

absl::Status WriteSafetensors(absl::Span<const Tensor> tensors, const ByteSink& sink) {
  Json header = Json::object();
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const size_t size_bytes = BytesOf(tensor).size();
    if (header.contains(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat("duplicate tensor name ", tensor.name));
    }
    if (ArrayBytes(tensor.shape, BytesPerElement(DtypeOf(tensor))) != size_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape of tensor ", tensor.name, " does not match its number of values"));
    }
    header[tensor.name] = {{"dtype", std::string(DtypeOf(tensor))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + size_bytes}}};
    offset += size_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(uint64_t{text.size()} >> (8 * i));
  RETURN_IF_ERROR(sink(length));
  RETURN_IF_ERROR(
      sink(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  for (const Tensor& tensor : tensors) RETURN_IF_ERROR(sink(BytesOf(tensor)));
  return absl::OkStatus();
}

SafetensorsFile::SafetensorsFile(std::string path, data::MappedFile file,
                                 std::vector<uint8_t> contents)
    : path_(std::move(path)), file_(std::move(file)), contents_(std::move(contents)) {}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(data::MappedFile mapped, data::MappedFile::Open(path));
  SafetensorsFile file(path, std::move(mapped), {});
  RETURN_IF_ERROR(Annotate(file.ParseHeader(), path));
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(const std::string& path,
                                                       std::vector<uint8_t> contents) {
  SafetensorsFile file(path, {}, std::move(contents));
  RETURN_IF_ERROR(Annotate(file.ParseHeader(), path));
  return file;
}

absl::Status SafetensorsFile::ParseHeader() {
  const absl::Span<const uint8_t> bytes = this->bytes();
  if (bytes.size() < 8) return absl::DataLossError("not a safetensors file: shorter than 8 bytes");
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= uint64_t{bytes[i]} << (8 * i);
  if (length > kMaxHeaderBytes || length > bytes.size() - 8) {
    return absl::DataLossError(absl::StrCat("invalid header length: ", length, " bytes"));
  }
  const absl::Span<const uint8_t> arrays = bytes.subspan(8 + length);
  const Json header = Json::parse(bytes.data() + 8, bytes.data() + 8 + length,
                                  /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return absl::DataLossError("header is not a JSON object");

  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& item : header.items()) {
    const std::string& name = item.key();
    if (name == "__metadata__") continue;
    const Json& value = item.value();
    const auto malformed = [&name](absl::string_view what) {
      return absl::DataLossError(absl::StrCat("tensor ", name, ": ", what));
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value.contains("data_offsets")) {
      return malformed("dtype, shape or data_offsets is missing");
    }
    Entry entry;
    entry.dtype = value["dtype"].get<std::string>();
    const size_t bytes_per_element = BytesPerElement(entry.dtype);
    if (bytes_per_element == 0) return malformed("unknown dtype " + entry.dtype);
    auto shape = ParseIntegers(value["shape"]);
    auto offsets = ParseIntegers(value["data_offsets"]);
    if (!shape.has_value()) return malformed("shape is not a list of integers");
    if (!offsets.has_value() || offsets->size() != 2) {
      return malformed("data_offsets is not a list of two integers");
    }
    const int64_t begin = (*offsets)[0], end = (*offsets)[1];
    if (begin < 0 || end < begin || static_cast<uint64_t>(end) > arrays.size()) {
      return malformed(absl::StrCat("data_offsets [", begin, ", ", end, "] exceed the ",
                                    arrays.size(), " bytes of data"));
    }
    if (ArrayBytes(*shape, bytes_per_element) != static_cast<uint64_t>(end - begin)) {
      return malformed("shape does not match data_offsets");
    }
    entry.shape = *std::move(shape);
    entry.bytes = arrays.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    ranges.emplace_back(begin, end);
    entries_.emplace(name, std::move(entry));
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t covered = 0;
  for (const auto& range : ranges) {
    if (range.first != covered) return absl::DataLossError("tensors overlap or leave gaps");
    covered = range.second;
  }
  if (static_cast<uint64_t>(covered) != arrays.size()) {
    return absl::DataLossError("extra bytes after the last tensor");
  }
  return absl::OkStatus();
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry.first);
  return names;
}

bool SafetensorsFile::Contains(absl::string_view name) const {
  return entries_.find(name) != entries_.end();
}

absl::StatusOr<std::vector<float>> SafetensorsFile::ReadFloats(
    absl::string_view name, absl::Span<const int64_t> shape) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, " has no tensor ", name));
  }
  const Entry& entry = found->second;
  if (absl::MakeConstSpan(entry.shape) == shape) {
    if (entry.dtype == "F32") {
      return ConvertAll<float>(entry.bytes, [](float value) { return value; });
    }
    if (entry.dtype == "F16") return ConvertAll<uint16_t>(entry.bytes, FromHalf);
    if (entry.dtype == "BF16") return ConvertAll<uint16_t>(entry.bytes, FromBfloat16);
    if (entry.dtype == "F64") {
      return ConvertAll<double>(entry.bytes,
                                [](double value) { return static_cast<float>(value); });
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path_, ": tensor ", name, " is ", entry.dtype, " [", absl::StrJoin(entry.shape, ", "),
      "]; expected floats [", absl::StrJoin(shape, ", "), "]"));
}

}  // namespace muster::train
