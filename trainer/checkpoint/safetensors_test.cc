#include "trainer/checkpoint/safetensors.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Serialize(const std::vector<Tensor>& tensors) {
  std::string bytes;
  const absl::Status status = WriteSafetensors(tensors, [&](absl::Span<const uint8_t> more) {
    bytes.append(more.begin(), more.end());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

std::string File(const std::string& header, const std::string& arrays) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size() & 0xff);
  bytes[1] = static_cast<char>(header.size() >> 8);
  return bytes + header + arrays;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<SafetensorsFile> Open(const std::string& bytes) const {
    const std::string path = directory_.path() + "/file.safetensors";
    data::WriteFile(path, bytes);
    return SafetensorsFile::Open(path);
  }
  data::TemporaryDirectory directory_;
};

TEST_F(SafetensorsTest, ReadsWrittenTensors) {
  const auto file = Open(Serialize({{"a.weight", {2, 2}, std::vector<float>{1, 2, 3, 4}},
                                    {"a.count", {}, std::vector<int64_t>{7}},
                                    {"empty", {0, 3}, std::vector<float>{}}}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file->ReadFloats("a.weight", {2, 2}), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(file->ReadFloats("empty", {0, 3})->empty());
  EXPECT_TRUE(file->Contains("a.count"));
  EXPECT_EQ(file->ReadFloats("b", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file->ReadFloats("a.weight", {4}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file->ReadFloats("a.count", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, WritesBytesOfFormat) {
  // Expected bytes: a header padded with spaces to a multiple of eight, then little-endian floats.
  const std::string bytes = Serialize({{"x", {1}, std::vector<float>{1.0f}}});
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x38\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(8, 56), header + std::string(56 - header.size(), ' '));
  EXPECT_EQ(bytes.substr(64), std::string("\0\0\x80\x3f", 4));
}

// As in models saved in half precision. Values are from the definitions of the formats.
TEST_F(SafetensorsTest, ConvertsOtherFloatTypes) {
  const auto read = [&](const std::string& dtype, const std::string& values, int64_t count) {
    const std::string header = R"({"__metadata__":{"format":"pt"},"x":{"dtype":")" + dtype +
                               R"(","shape":[)" + std::to_string(count) +
                               R"(],"data_offsets":[0,)" + std::to_string(values.size()) + "]}}";
    const auto file = Open(File(header, values));
    EXPECT_TRUE(file.ok()) << file.status();
    return *file->ReadFloats("x", {count});
  };
  // 1, -2, rounded 1/3, largest, smallest normal, smallest subnormal, -0, inf, NaN.
  const std::vector<float> half = read(
      "F16",
      std::string("\x00\x3c\x00\xc0\x55\x35\xff\x7b\x00\x04\x01\x00\x00\x80\x00\x7c\x01\x7e", 18),
      9);
  EXPECT_THAT(std::vector<float>(half.begin(), half.begin() + 8),
              ElementsAre(1.0f, -2.0f, 0.333251953125f, 65504.0f, std::ldexp(1.0f, -14),
                          std::ldexp(1.0f, -24), 0.0f, std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::signbit(half[6]));
  EXPECT_TRUE(std::isnan(half[8]));
  EXPECT_THAT(read("BF16", std::string("\x80\x3f\x49\x40\x80\xff", 6), 3),
              ElementsAre(1.0f, 3.140625f, -std::numeric_limits<float>::infinity()));
  EXPECT_THAT(read("F64", std::string("\0\0\0\0\0\0\xf8\xbf", 8), 1), ElementsAre(-1.5f));
}

TEST_F(SafetensorsTest, ReportsBothShapesOnMismatch) {
  const auto file = Open(Serialize({{"fc.weight", {1000, 1}, std::vector<float>(1000)},
                                    {"count", {}, std::vector<int64_t>{7}}}));
  const auto error = [&](const char* name, std::vector<int64_t> shape) {
    return std::string(file->ReadFloats(name, shape).status().message());
  };
  EXPECT_THAT(error("fc.weight", {10, 1}), HasSubstr("fc.weight is F32 [1000, 1]"));
  EXPECT_THAT(error("fc.weight", {10, 1}), HasSubstr("expected floats [10, 1]"));
  EXPECT_THAT(error("count", {}), HasSubstr("I64 []"));
  EXPECT_THAT(file->names(), ElementsAre("count", "fc.weight"));
}

TEST_F(SafetensorsTest, RejectsInvalidTensors) {
  const auto status = [](const std::vector<Tensor>& tensors) {
    return WriteSafetensors(tensors, [](absl::Span<const uint8_t>) { return absl::OkStatus(); });
  };
  EXPECT_EQ(status({{"x", {2}, std::vector<float>{1}}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{"x", {}, std::vector<float>{1}}, {"x", {}, std::vector<float>{1}}}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, DetectsEveryTruncation) {
  const std::string bytes = Serialize({{"x", {3}, std::vector<float>{1, 2, 3}}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Open(bytes.substr(0, size)).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_EQ(Open(bytes + "x").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SafetensorsTest, RejectsInvalidOffsets) {
  const std::string four(4, 'x');
  const auto open = [&](const std::string& tensor, const std::string& arrays) {
    return Open(File("{\"x\":" + tensor + "}", arrays)).status();
  };
  ASSERT_TRUE(open(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", four).ok());
  for (const char* tensor : {
           R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
           R"({"dtype":"F32","shape":[1],"data_offsets":"0,4"})",
           R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
           R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})",
           R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})",
           R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})",
           R"({"shape":[1],"data_offsets":[0,4]})",
           R"([1])",
           R"({"dtype":"F32")",
       }) {
    EXPECT_EQ(open(tensor, four).code(), absl::StatusCode::kDataLoss) << tensor;
  }
  EXPECT_EQ(Open(File("[]", "")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Open(std::string(8, '\xff')).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SafetensorsTest, RejectsOverlapsAndGaps) {
  const auto two = [](int begin, int end) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],)"
           R"("data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}}";
  };
  EXPECT_TRUE(Open(File(two(4, 8), std::string(8, 'x'))).ok());
  EXPECT_FALSE(Open(File(two(3, 7), std::string(8, 'x'))).ok());
  EXPECT_FALSE(Open(File(two(5, 9), std::string(9, 'x'))).ok());
}

TEST_F(SafetensorsTest, NamesFileInErrors) {
  EXPECT_THAT(std::string(Open("short").status().message()), HasSubstr("file.safetensors"));
  const absl::Status missing = SafetensorsFile::Open(directory_.path() + "/none").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(directory_.path() + "/none"));
}

}  // namespace
}  // namespace muster::train
