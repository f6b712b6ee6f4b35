// Iterates over the pixels of NHWC activations in memory order, with per-channel values. Compiled
// once per instruction set.
//
// A few adjacent pixels are treated as one row of columns, so that a row consists of whole vectors
// for any number of channels. Iterating by channel blocks over all pixels would read each cache
// line of a narrow activation several times, and jump between the pages of a wide one.
#ifndef MUSTER_KERNELS_CPU_VECTOR_COLUMNS_H_
#define MUSTER_KERNELS_CPU_VECTOR_COLUMNS_H_

#include <cstdint>

#include "kernels/cpu/vector/vector.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Per row: values kept per column stay in the first-level cache.
inline constexpr int64_t kMaxColumns = 1024;

// Channels `channel` to channel + channels of some pixels, as rows of columns.
struct ColumnBlock {
  int64_t channel;
  int64_t channels;
  int64_t copies;   // pixels per row
  int64_t columns;  // copies * channels, at most kMaxColumns
  int64_t rows;     // number of rows
  int64_t begin;    // element of the first row's first column
  int64_t stride;   // elements between adjacent rows
};

// A float per column of a block, made from one per channel.
struct ColumnValues {
  alignas(64) float values[kMaxColumns];

  // value(c) is the value of channel c.
  template <typename Value>
  void Fill(const ColumnBlock& block, const Value& value) {
    for (int64_t c = 0; c < block.channels; ++c) values[c] = value(block.channel + c);
    for (int64_t i = block.channels; i < block.columns; ++i) {
      values[i] = values[i - block.channels];
    }
  }
  void Fill(const ColumnBlock& block, const float* channels) {
    Fill(block, [=](int64_t c) { return channels[c]; });
  }
  template <typename T>
  T Load(int64_t column) const {
    return Element<T>::Load(values + column);
  }
};

inline int64_t PixelsPerRow(int64_t channels) {
  int64_t pixels = 1;
  while (pixels * channels % kLanes != 0) pixels *= 2;
  while (pixels * channels < 4 * kLanes) pixels *= 2;
  return pixels * channels <= kMaxColumns ? pixels : 1;
}

// Calls visit(block) for blocks of the channels from `channel` on: one of whole rows, and one of
// the remaining pixels.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEachBlockOfChannels(int64_t pixels, int64_t all_channels,
                                                 int64_t channel, int64_t channels,
                                                 const Visit& visit) {
  const int64_t per_row = PixelsPerRow(all_channels);
  const int64_t rows = pixels / per_row;
  visit(ColumnBlock{channel, channels, per_row, per_row * channels, rows, channel,
                    per_row * all_channels});
  const int64_t left = pixels - rows * per_row;
  if (left == 0) return;
  visit(ColumnBlock{channel, channels, 1, channels, left, rows * per_row * all_channels + channel,
                    all_channels});
}

// Calls visit(channel, channels) for ranges of channels that fit into a row.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEachRangeOfChannels(int64_t channels, const Visit& visit) {
  for (int64_t channel = 0; channel < channels; channel += kMaxColumns) {
    visit(channel, channels - channel < kMaxColumns ? channels - channel : kMaxColumns);
  }
}

// Calls visit(block) for blocks that together contain all elements.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEachColumnBlock(int64_t pixels, int64_t channels, const Visit& visit) {
  ForEachRangeOfChannels(channels, [&](int64_t channel, int64_t count) {
    ForEachBlockOfChannels(pixels, channels, channel, count, visit);
  });
}

// Prefetches kVectors vectors of elements.
template <int kVectors, typename Storage>
MUSTER_ALWAYS_INLINE void PrefetchVectors(const Storage* p) {
  constexpr int kBytes = kVectors * kLanes * static_cast<int>(sizeof(Storage));
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(reinterpret_cast<const char*>(p) + i);
}

// Calls body.Run<T>(column, element) for every T of the block, row by row, and ahead of that
// body.Prefetch<vectors>(element), possibly beyond the end: with several inputs, the hardware
// prefetcher does not keep up with memory. The body is passed by value: otherwise stores might
// alias it, and its pointers would be reloaded every time.
template <typename Body>
inline void ForEachInRows(const ColumnBlock block, const Body body) {
  const int64_t ahead = block.stride > kMaxColumns ? block.stride : kMaxColumns;
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t at = block.begin + row * block.stride;
    int64_t column = 0;
    for (; column + 4 * kLanes <= block.columns; column += 4 * kLanes) {
      body.template Prefetch<4>(at + column + ahead);
      for (int i = 0; i < 4; ++i) {
        body.template Run<Vector>(column + i * kLanes, at + column + i * kLanes);
      }
    }
    for (; column + kLanes <= block.columns; column += kLanes) {
      body.template Prefetch<1>(at + column + ahead);
      body.template Run<Vector>(column, at + column);
    }
    for (; column < block.columns; ++column) body.template Run<float>(column, at + column);
  }
}

template <typename T, int kCount>
struct ChannelValues {
  T values[kCount];
  explicit ChannelValues(const float* p) {
    for (int i = 0; i < kCount; ++i) values[i] = Element<T>::Load(p + i * Element<T>::kWidth);
  }
  T operator[](int i) const { return values[i]; }
};

// Two sums per channel, over the rows of blocks of one range of channels.
//
// Rows are processed in tiles that fit a low-level cache: within a tile, the sums and the terms'
// values of a few columns stay in registers. Sums are float over kRowsPerSum rows, then double.
struct ColumnSums {
  static constexpr int64_t kRowsPerSum = 128;
  static constexpr int64_t kTileElements = 4096;
  static constexpr int64_t kMinTileRows = 8;

  double first[kMaxColumns] = {};
  double second[kMaxColumns] = {};

  // terms.At<T, kCount>(column) returns a function that is called with (i, element, first sum,
  // second sum) for the T that begins i vectors after the column, and adds to the sums.
  // terms.Prefetch<vectors>(element) prefetches that many vectors of each input, possibly beyond
  // its end.
  template <typename Terms>
  void Add(const ColumnBlock& block, const Terms& terms) {
    const int64_t fitting = kTileElements / block.columns;
    const int64_t tile = fitting > kMinTileRows ? fitting : kMinTileRows;
    Partial partial;
    for (int64_t begin = 0; begin < block.rows; begin += kRowsPerSum) {
      const int64_t end = Smaller(begin + kRowsPerSum, block.rows);
      partial.Clear(block.columns);
      for (int64_t row = begin; row < end; row += tile) {
        partial.AddTile(block, terms, row, Smaller(row + tile, end));
      }
      for (int64_t i = 0, c = 0; i < block.columns; ++i) {
        first[c] += static_cast<double>(partial.first[i]);
        second[c] += static_cast<double>(partial.second[i]);
        if (++c == block.channels) c = 0;
      }
    }
  }

 private:
  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

  struct Partial {
    alignas(64) float first[kMaxColumns];
    alignas(64) float second[kMaxColumns];

    void Clear(int64_t columns) {
      for (int64_t i = 0; i < columns; ++i) first[i] = second[i] = 0;
    }

    template <typename Terms>
    void AddTile(const ColumnBlock& block, const Terms& terms, int64_t begin, int64_t end) {
      int64_t column = 0;
      for (; column + 4 * kLanes <= block.columns; column += 4 * kLanes) {
        AddColumns<Vector, 4>(block, terms, begin, end, column);
      }
      if (column + 2 * kLanes <= block.columns) {
        AddColumns<Vector, 2>(block, terms, begin, end, column);
        column += 2 * kLanes;
      }
      if (column + kLanes <= block.columns) {
        AddColumns<Vector, 1>(block, terms, begin, end, column);
        column += kLanes;
      }
      for (; column < block.columns; ++column) {
        AddColumns<float, 1>(block, terms, begin, end, column);
      }
    }

    template <typename T, int kCount, typename Terms>
    void AddColumns(const ColumnBlock& block, const Terms& terms, int64_t begin, int64_t end,
                    int64_t column) {
      constexpr int kWidth = Element<T>::kWidth;
      // In a tile of several columns, memory is not read in order.
      const int64_t ahead = (end - begin) * block.stride;
      const auto add_term = terms.template At<T, kCount>(column);
      ChannelValues<T, kCount> sums(first + column), products(second + column);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = block.begin + row * block.stride + column;
        if constexpr (kWidth > 1) terms.template Prefetch<kCount>(at + ahead);
        for (int i = 0; i < kCount; ++i) {
          add_term(i, at + i * kWidth, sums.values[i], products.values[i]);
        }
      }
      for (int i = 0; i < kCount; ++i) {
        Element<T>::Store(first + column + i * kWidth, sums[i]);
        Element<T>::Store(second + column + i * kWidth, products[i]);
      }
    }
  };
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_COLUMNS_H_
