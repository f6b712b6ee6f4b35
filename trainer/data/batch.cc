#include "trainer/data/batch.h"

#include "trainer/data/sampler.h"

namespace muster::data {

Batch Batch::Part(uint32_t part, uint32_t parts) const {
  const RowRange samples = Share(rows / views, part, parts);
  const size_t begin = samples.begin * views;
  Batch result = *this;
  result.first_row += samples.begin;
  result.rows = samples.size() * views;
  const size_t sample_bytes = rows == 0 ? 0 : pixels.size() / (rows / views);
  result.pixels = pixels.subspan(samples.begin * sample_bytes, samples.size() * sample_bytes);
  result.first_pixel += samples.begin * sample_bytes;
  if (!images.empty()) result.images = images.subspan(begin, result.rows);
  result.labels = labels.subspan(begin, result.rows);
  return result;
}

}  // namespace muster::data
