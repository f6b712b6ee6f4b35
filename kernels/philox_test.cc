#include "kernels/philox.h"

#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

// Known answers published by the authors with Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformsStayInRange) {
  EXPECT_EQ(Uniform01(0), 0.0f);
  EXPECT_LT(Uniform01(0xffffffff), 1.0f);
  EXPECT_EQ(UniformBelow(0, 7), 0u);
  EXPECT_EQ(UniformBelow(0xffffffff, 7), 6u);
}

TEST(PhiloxTest, UniformsHaveTheMomentsOfAUniformDistribution) {
  double sum = 0;
  double squares = 0;
  constexpr int kBlocks = 20000;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    for (const uint32_t word : Philox4x32({i, 0, 0, 0}, {1, 2})) {
      const double u = Uniform01(word);
      sum += u;
      squares += u * u;
    }
  }
  EXPECT_NEAR(sum / (4 * kBlocks), 0.5, 0.005);
  EXPECT_NEAR(squares / (4 * kBlocks), 1.0 / 3, 0.005);
}

TEST(PhiloxTest, KeysOfDifferentPurposesDiffer) {
  EXPECT_NE(DerivePhiloxKey(1, 0), DerivePhiloxKey(1, 1));
  EXPECT_NE(DerivePhiloxKey(1, 0), DerivePhiloxKey(2, 0));
}

}  // namespace
}  // namespace muster::kernels
