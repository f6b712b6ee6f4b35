// Resizes images for resize_test.py with every set of kernels that the CPU supports.
//
//   resize_driver INPUT OUTPUT
//
// INPUT is a sequence of cases: int32 in_height, in_width, channels, height, width, flip; float64
// top, left, box_height, box_width; the pixels. OUTPUT contains for each case the resized pixels of
// every kernel set, from the reference to the fastest.
#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <vector>

#include "kernels/cpu/table/instruction_set.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace {

template <typename T>
bool Read(std::istream& in, T* values, size_t count) {
  return static_cast<bool>(
      in.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T))));
}

bool ResizeNext(std::istream& in, std::ostream& out) {
  std::array<int32_t, 6> sizes;
  std::array<double, 4> box;
  if (!Read(in, sizes.data(), sizes.size()) || !Read(in, box.data(), box.size())) return false;
  ResizeShape shape;
  shape.in_height = sizes[0];
  shape.in_width = sizes[1];
  shape.channels = sizes[2];
  shape.row_bytes = shape.in_width * shape.channels;
  shape.height = sizes[3];
  shape.width = sizes[4];
  shape.flip = sizes[5] != 0;
  shape.top = box[0];
  shape.left = box[1];
  shape.box_height = box[2];
  shape.box_width = box[3];
  std::vector<uint8_t> x(shape.in_height * shape.row_bytes);
  if (!Read(in, x.data(), x.size())) return false;

  std::vector<uint8_t> y(shape.height * shape.width * shape.channels);
  std::vector<float> scratch(ResizeScratchBytes(shape) / sizeof(float) + 1);
  const auto resize = [&](const KernelTable& kernels) {
    kernels.resize(shape, x.data(), y.data(), scratch.data());
    out.write(reinterpret_cast<const char*>(y.data()), static_cast<std::streamsize>(y.size()));
  };
  resize(ReferenceKernels());
  for (const auto set : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512,
                         InstructionSet::kAvx512Bf16}) {
    if (set <= DetectInstructionSet()) resize(CpuKernels(set));
  }
  return true;
}

}  // namespace
}  // namespace muster::kernels

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: resize_driver INPUT OUTPUT\n";
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  std::ofstream out(argv[2], std::ios::binary);
  while (muster::kernels::ResizeNext(in, out)) {
  }
  out.close();
  return in.eof() && out ? 0 : 1;
}
