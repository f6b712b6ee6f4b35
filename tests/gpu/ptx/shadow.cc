#include "tests/gpu/ptx/shadow.h"

#include <algorithm>
#include <bit>
#include <new>

namespace muster::ptx {

Shadow::Cells Shadow::Allocate(size_t bytes, int shift) {
  const size_t count = (bytes >> shift) + 1;
  void* const cells = std::calloc(count, sizeof(Cell));
  if (cells == nullptr) throw std::bad_alloc();
  return Cells(static_cast<Cell*>(cells));
}

void Shadow::Refine(size_t bytes) {
  const int shift = std::countr_zero(bytes);
  Cells cells = Allocate(bytes_, shift);
  const size_t each = size_t{1} << (shift_ - shift);
  for (size_t i = 0; i < (bytes_ >> shift_) + 1; ++i) {
    // Cells that were never accessed stay without memory.
    if (cells_[i].written == 0 && cells_[i].read == 0) continue;
    for (size_t k = 0; k < each && i * each + k <= bytes_ >> shift; ++k) {
      cells[i * each + k] = cells_[i];
    }
  }
  cells_ = std::move(cells);
  shift_ = shift;
}

void Shadow::MarkInitialized(size_t offset, size_t bytes) {
  if (bytes == 0) return;
  // The last cell of the range may extend beyond it only at the end of the memory.
  const size_t end = offset + bytes == bytes_ ? 0 : offset + bytes;
  const size_t alignment = size_t{1} << std::countr_zero(offset | end | size_t{4});
  if (alignment >> shift_ == 0) Refine(alignment);
  const size_t last = (offset + bytes - 1) >> shift_;
  for (size_t i = offset >> shift_; i <= last; ++i) cells_[i].written = kHostStamp;
}

size_t Shadow::FirstUninitialized(size_t offset, size_t bytes) const {
  for (size_t at = offset; at < offset + bytes; at = ((at >> shift_) + 1) << shift_) {
    if (cells_[at >> shift_].written == 0) return at;
  }
  return offset + bytes;
}

}  // namespace muster::ptx
