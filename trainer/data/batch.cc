#include "trainer/data/batch.h"

namespace muster::data {

Batch Batch::Slice(uint32_t slice, uint32_t slices) const {
  return Samples(Share(samples / views, slice, slices));
}

Batch Batch::Samples(SampleRange range) const {
  const size_t begin = range.begin * views;
  Batch result = *this;
  result.first_sample += range.begin;
  result.samples = range.size() * views;
  const size_t sample_bytes = samples == 0 ? 0 : pixels.size() / (samples / views);
  result.pixels = pixels.subspan(range.begin * sample_bytes, range.size() * sample_bytes);
  result.first_pixel += range.begin * sample_bytes;
  if (!images.empty()) result.images = images.subspan(begin, result.samples);
  result.labels = labels.subspan(begin, result.samples);
  return result;
}

}  // namespace muster::data
