// Compares the index arithmetic of kernels with its definition, exhaustively for small sizes.
#include "kernels/cuda/launch/windows.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch/channel_tiling.h"

namespace muster::kernels::cuda_on_host {
namespace {

TEST(DividerTest, MatchesIntegerDivision) {
  std::mt19937_64 random(1);
  std::vector<int64_t> numbers = {1, 2, 3, 5, 7, 255, 256, 641, 65537, (1 << 30) + 1};
  for (int64_t n : {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 40}) {
    for (const int64_t by : {-1, 0, 1}) numbers.push_back(n + by);
  }
  for (int i = 0; i < 200; ++i)
    numbers.push_back(static_cast<int64_t>(random() >> (24 + i % 38)) + 1);
  for (const int64_t divisor : numbers) {
    const Divider divider(divisor);
    ASSERT_EQ(divider.Divide(0), 0);
    for (const int64_t number : numbers) {
      for (const int64_t by : {-1, 0, 1}) {
        // Dividends around the number and around multiples of the divisor, also near 2^31.
        const int64_t multiple = (int64_t{1} << 31) / divisor * divisor;
        for (const int64_t n : {number + by, number / divisor * divisor + by, multiple + by}) {
          if (n < 0) continue;
          int64_t quotient = n;
          ASSERT_EQ(divider.DivMod(quotient), n % divisor) << n << " / " << divisor;
          ASSERT_EQ(quotient, n / divisor) << n << " / " << divisor;
          if (n >= int64_t{1} << 31 || divisor >= int64_t{1} << 31) continue;
          auto small = static_cast<int32_t>(n);
          ASSERT_EQ(divider.DivModSmall(small), n % divisor) << n << " / " << divisor;
          ASSERT_EQ(small, n / divisor) << n << " / " << divisor;
        }
      }
    }
  }
}

TEST(AxisTest, WindowsAndPixelsAreConsistent) {
  for (int64_t size = 1; size < 9; ++size) {
    for (int64_t kernel = 1; kernel < 6; ++kernel) {
      for (int64_t stride = 1; stride < 5; ++stride) {
        for (int64_t padding = 0; padding < 4; ++padding) {
          if (size + 2 * padding < kernel) continue;
          const Axis axis(size, kernel, stride, padding);
          for (int64_t pixel = 0; pixel < size; ++pixel) {
            const Range over = axis.WindowsOver(pixel);
            for (int64_t window = 0; window < axis.windows; ++window) {
              const int64_t cell = pixel - (window * stride - padding);
              const bool covers = cell >= 0 && cell < kernel;
              EXPECT_EQ(window >= over.begin && window < over.end, covers);
              const Range cells = axis.CellsOf(window);
              if (covers) EXPECT_TRUE(cell >= cells.begin && cell < cells.end);
            }
          }
          for (int64_t window = 0; window < axis.windows; ++window) {
            const Range cells = axis.CellsOf(window);
            if (cells.begin >= cells.end) continue;
            EXPECT_GE(axis.Begin(window) + cells.begin, 0);
            EXPECT_LE(axis.Begin(window) + cells.end, size);
            EXPECT_LE(cells.end, kernel);
          }
        }
      }
    }
  }
}

// Adjacent threads process adjacent vectors.
TEST(ChannelTilingTest, VisitsEachVectorOfEachPixelOncePerSum) {
  for (const int64_t pixels : {0, 1, 5, 700, 20000}) {
    for (const int64_t vectors : {1, 3, 8, 64, 65, 300}) {
      for (const int64_t sums : {1, 10}) {
        const ChannelTiling tiling(pixels, vectors, sums, kMaxLanes, kReductionBlocks);
        EXPECT_LE(tiling.blocks(), std::max<int64_t>(kReductionBlocks, tiling.groups * sums));
        std::vector<int> seen(sums * pixels * vectors);
        for (uint32_t block = 0; block < tiling.blocks(); ++block) {
          for (int thread = 0; thread < kThreads; ++thread) {
            const int64_t vector = tiling.Vector(block, thread);
            if (vector >= vectors) continue;
            if (thread % tiling.lanes() > 0)
              ASSERT_EQ(vector, tiling.Vector(block, thread - 1) + 1);
            auto visit = [&](int64_t pixel) {
              ++seen[(tiling.SumIndex(block) * pixels + pixel) * vectors + vector];
            };
            tiling.ForEachPixel(block, thread, visit);
          }
        }
        for (const int count : seen) ASSERT_EQ(count, 1) << pixels << " " << vectors;
      }
    }
  }
}

}  // namespace
}  // namespace muster::kernels::cuda_on_host
