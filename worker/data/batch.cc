#include "worker/data/batch.h"

#include "worker/data/sampler.h"

namespace muster::data {

Batch Batch::Part(uint32_t part, uint32_t parts) const {
  const RowRange samples = Share(rows / views, part, parts);
  const size_t begin = samples.begin * views;
  Batch result = *this;
  result.first_row += samples.begin;
  result.rows = samples.size() * views;
  const size_t image_bytes = rows == 0 ? 0 : pixels.size() / rows;
  result.pixels = pixels.subspan(begin * image_bytes, result.rows * image_bytes);
  result.labels = labels.subspan(begin, result.rows);
  if (!erasures.empty()) result.erasures = erasures.subspan(begin, result.rows);
  return result;
}

}  // namespace muster::data
