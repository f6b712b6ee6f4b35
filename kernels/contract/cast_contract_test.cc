// Compares every kernel set's casts with the reference, and the conversions to and from 16 bits
// with their definition.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cast.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Whether instructions for bfloat16 may flush the value to zero.
bool IsSubnormal(DataType type, float value) {
  return type == DataType::kBfloat16 && std::abs(value) < 0x1p-126f;
}

void ExpectCast(const TypedBuffer& actual, const TypedBuffer& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(actual[i])) << i;
    } else if (!IsSubnormal(expected.type(), expected[i]) || actual[i] != 0) {
      ASSERT_EQ(actual[i], expected[i]) << i;
    }
  }
}

bool AllFinite(const KernelTable& table, DataType type, const void* x, size_t count) {
  TestVector<uint8_t> finite(1, 2);  // neither true nor false
  table.all_finite(type, x, count, reinterpret_cast<bool*>(finite.data()));
  EXPECT_LE(finite[0], 1);
  return finite[0] == 1;
}

class CastContractTest : public KernelContractTest {};

// Ranges of several pieces and of a few elements, from the middle of a list, with gaps.
TEST_P(CastContractTest, Ranges) {
  std::vector<CastRange> list;
  int64_t end = 0;
  for (const int64_t count : {int64_t{3}, int64_t{5}, 2 * kCastPiece + 7, int64_t{1}, kCastPiece}) {
    const int64_t pieces =
        list.empty() ? 0 : list.back().first_piece + CastPieces(list.back().count);
    list.push_back({.begin = end, .count = count, .first_piece = pieces});
    end += (count + 15) / 16 * 16;
  }
  TestVector<CastRange> ranges(list.size());
  std::copy(list.begin(), list.end(), ranges.data());
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    const TypedBuffer x(type, end, random_);
    const TypedBuffer y(DataType::kFloat32, end);
    const TypedBuffer expected(DataType::kFloat32, end);
    int64_t pieces = 0;
    for (size_t r = 1; r < 4; ++r) {
      for (int64_t i = list[r].begin; i < list[r].begin + list[r].count; ++i) expected.Set(i, x[i]);
      pieces += CastPieces(list[r].count);
    }
    kernels().cast_ranges(type, x.data(), DataType::kFloat32, y.data(), ranges.data() + 1, 3,
                          pieces);
    ExpectSame(y, expected, "ranges");
    const TypedBuffer of_reference(DataType::kFloat32, end);
    reference().cast_ranges(type, x.data(), DataType::kFloat32, of_reference.data(),
                            ranges.data() + 1, 3, pieces);
    ExpectSame(of_reference, expected, "reference");
  }
}

// Every exponent, halfway cases, NaN and infinity. Counts that are no multiple of a vector.
TEST_P(CastContractTest, AllTypesToAllTypes) {
  std::vector<float> values = {0.0f,        -0.0f,       kNan,           kInfinity,     -kInfinity,
                               65504.0f,    65519.0f,    65520.0f,       -65520.0f,     65536.0f,
                               1e30f,       -3.4e38f,    3.4e38f,        0x1p-24f,      0x1p-25f,
                               0x1.8p-25f,  0x1p-14f,    0x1.ffcp-15f,   0x1p-126f,     0x1p-130f,
                               1.00390625f, 1.01171875f, 1.00048828125f, 1.00146484375f};
  for (int i = 0; i < 3000; ++i) {
    const auto bits = static_cast<uint32_t>(random_());
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
    values.push_back(std::ldexp(1.0f + static_cast<float>(bits % 4096) / 4096, i % 40 - 26));
  }
  for (const DataType from : kDataTypes) {
    const TypedBuffer x(from, values.size() + 1);
    for (size_t i = 0; i < values.size(); ++i) x.Set(i, values[i]);
    for (const DataType to : kDataTypes) {
      for (const float scale : {1.0f, 0.25f, -3.1f}) {
        SCOPED_TRACE(std::string(NameOf(from)) + " to " + NameOf(to) + " * " +
                     std::to_string(scale));
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{37}, x.size()}) {
          const TypedBuffer y(to, x.size()), expected(to, x.size());
          kernels().cast(from, x.data(), scale, to, y.data(), count);
          reference().cast(from, x.data(), scale, to, expected.data(), count);
          ExpectCast(y, expected);
        }
        if (SizeOf(from) != SizeOf(to)) continue;
        const TypedBuffer expected(to, x.size());
        reference().cast(from, x.data(), scale, to, expected.data(), x.size());
        const TypedBuffer place = x;
        kernels().cast(from, place.data(), scale, to, place.data(), x.size());
        const TypedBuffer y(to, x.size());
        std::memcpy(y.data(), place.data(), x.size() * SizeOf(to));
        ExpectCast(y, expected);
      }
    }
  }
}

TEST_P(CastContractTest, ValuesOutOfRangeBecomeInfinity) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    const TypedBuffer x(DataType::kFloat32, 20), y(DataType::kFloat16, 20);
    for (int i = 0; i < 20; ++i) x.Set(i, i % 2 == 0 ? 70000 : -70000);
    table->cast(DataType::kFloat32, x.data(), 1, DataType::kFloat16, y.data(), 20);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(y[i], i % 2 == 0 ? kInfinity : -kInfinity);
    EXPECT_FALSE(AllFinite(*table, DataType::kFloat16, y.data(), 20));
    table->cast(DataType::kFloat32, x.data(), 0.5f, DataType::kFloat16, y.data(), 20);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(std::abs(y[i]), 35008);
  }
}

// Every bit pattern of the 16-bit types, except that subnormal bfloat16 may become zero.
TEST_P(CastContractTest, SixteenBitToFloatAndBackIsTheIdentity) {
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    constexpr size_t kCount = 1 << 16;
    const TypedBuffer x(type, kCount), wide(DataType::kFloat32, kCount), y(type, kCount);
    for (size_t i = 0; i < kCount; ++i) static_cast<uint16_t*>(x.data())[i] = i;
    kernels().cast(type, x.data(), 1, DataType::kFloat32, wide.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(wide[i] == x[i] || (std::isnan(wide[i]) && std::isnan(x[i]))) << i;
    }
    kernels().cast(DataType::kFloat32, wide.data(), 1, type, y.data(), kCount);
    ExpectCast(y, x);
  }
}

TEST_P(CastContractTest, AllFinite) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    for (const DataType type : kDataTypes) {
      for (const size_t count : {0, 1, 17, 64, 100, 5000}) {
        SCOPED_TRACE(std::string(table->name) + " " + NameOf(type) + " " + std::to_string(count));
        const TypedBuffer x(type, count, random_);
        if (count > 0) x.Set(0, 0x1.8p15);  // large, and finite in every type
        EXPECT_TRUE(AllFinite(*table, type, x.data(), count));
        for (const float bad : {kNan, kInfinity, -kInfinity}) {
          for (const size_t at : {size_t{0}, count / 2, count - 1}) {
            if (count == 0) continue;
            const float before = x[at];
            x.Set(at, bad);
            EXPECT_FALSE(AllFinite(*table, type, x.data(), count)) << bad << " at " << at;
            x.Set(at, before);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, CastContractTest, EveryKernelSet(), KernelSetName);

}  // namespace
}  // namespace muster::kernels
