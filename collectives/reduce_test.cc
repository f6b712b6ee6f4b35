#include "collectives/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/half.h"

namespace muster::collectives {
namespace {

using kernels::FromBfloat16;
using kernels::FromFloat16;
using kernels::ToBfloat16;
using kernels::ToFloat16;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat64, DataType::kBfloat16,
                               DataType::kFloat16, DataType::kInt32,   DataType::kInt64,
                               DataType::kUint8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};

TEST(HalfTest, Float16RoundTripsThroughFloat32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0) {
      EXPECT_TRUE(std::isnan(FromFloat16(half))) << bits;
      EXPECT_TRUE(std::isnan(FromFloat16(ToFloat16(FromFloat16(half))))) << bits;
    } else {
      EXPECT_EQ(ToFloat16(FromFloat16(half)), half) << bits;
    }
  }
}

TEST(HalfTest, ConvertsKnownValues) {
  EXPECT_EQ(ToFloat16(1.0f), 0x3c00);
  EXPECT_EQ(ToFloat16(65504.0f), 0x7bff);  // the largest
  EXPECT_EQ(ToFloat16(65520.0f), 0x7c00);  // halfway to the next value: rounds to infinity
  EXPECT_EQ(ToFloat16(0x1p-24f), 0x0001);  // the smallest subnormal
  EXPECT_EQ(ToFloat16(-0.0f), 0x8000);
  EXPECT_EQ(ToBfloat16(1.0f), 0x3f80);
  // Ties go to even.
  EXPECT_EQ(ToFloat16(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(ToFloat16(1.0f + 0x3p-11f), 0x3c02);
  EXPECT_EQ(ToBfloat16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(ToBfloat16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(FromBfloat16(ToBfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

// Any bit patterns except NaNs, whose min and max are unspecified.
std::vector<std::byte> RandomValues(DataType type, size_t count, std::mt19937_64* random) {
  std::vector<std::byte> bytes(count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = (*random)();
    if (type == DataType::kFloat32) bits &= ~uint64_t{0x40000000};
    if (type == DataType::kFloat64) bits &= ~(uint64_t{1} << 62);
    if (type == DataType::kFloat16 || type == DataType::kBfloat16) bits &= ~uint64_t{0x4000};
    std::memcpy(bytes.data() + i * SizeOf(type), &bits, SizeOf(type));
  }
  return bytes;
}

TEST(ReduceTest, InstructionSetsProduceIdenticalBits) {
  std::mt19937_64 random(1);
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t arrays : {size_t{1}, size_t{2}, size_t{5}}) {
        const size_t count = 2500;  // more than two blocks, and partial vectors
        std::vector<std::vector<std::byte>> values;
        std::vector<const void*> inputs;
        for (size_t i = 0; i < arrays; ++i) values.push_back(RandomValues(type, count, &random));
        for (const auto& value : values) inputs.push_back(value.data());
        std::vector<std::byte> expected(count * SizeOf(type));
        void* const expected_output = expected.data();
        ReduceArraysWith("plain", inputs, {&expected_output, 1}, count, type, op);
        for (const absl::string_view set : ReduceInstructionSets()) {
          std::vector<std::byte> first(expected.size());
          std::vector<std::byte> second(expected.size());
          void* const outputs[] = {first.data(), second.data()};
          ReduceArraysWith(set, inputs, outputs, count, type, op);
          EXPECT_EQ(first, expected) << set << " type " << static_cast<int>(type);
          EXPECT_EQ(second, expected) << set << " type " << static_cast<int>(type);
        }
      }
    }
  }
}

TEST(ReduceTest, OutputMayAliasAnyInput) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const absl::string_view set : ReduceInstructionSets()) {
      for (size_t target = 0; target < 4; ++target) {
        std::mt19937_64 random(target);
        std::vector<std::vector<std::byte>> values;
        std::vector<const void*> inputs;
        for (int i = 0; i < 4; ++i) values.push_back(RandomValues(type, 1500, &random));
        for (const auto& value : values) inputs.push_back(value.data());
        std::vector<std::byte> expected(values[0].size());
        void* output = expected.data();
        ReduceArraysWith(set, inputs, {&output, 1}, 1500, type, ReduceOp::kSum);
        output = values[target].data();
        ReduceArraysWith(set, inputs, {&output, 1}, 1500, type, ReduceOp::kSum);
        EXPECT_EQ(values[target], expected) << set << " target " << target;
      }
    }
  }
}

// Adding ones to 256 in bfloat16 would stay at 256 and lose the rest.
TEST(ReduceTest, HalvesAreSummedInFloat32) {
  const uint16_t big = ToBfloat16(256.0f);
  const uint16_t one = ToBfloat16(1.0f);
  const void* const inputs[] = {&big, &one, &one};
  uint16_t sum = 0;
  void* const output = &sum;
  ReduceArrays(inputs, {&output, 1}, 1, DataType::kBfloat16, ReduceOp::kSum);
  EXPECT_EQ(FromBfloat16(sum), 258.0f);
}

TEST(ReduceTest, IntegersWrap) {
  const int32_t a = std::numeric_limits<int32_t>::max();
  const int32_t b = 1;
  const void* const inputs[] = {&a, &b};
  int32_t sum = 0;
  void* const output = &sum;
  ReduceArrays(inputs, {&output, 1}, 1, DataType::kInt32, ReduceOp::kSum);
  EXPECT_EQ(sum, std::numeric_limits<int32_t>::min());
}

}  // namespace
}  // namespace muster::collectives
