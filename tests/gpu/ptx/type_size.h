// Sizes of PTX's fundamental types.
#ifndef MUSTER_TESTS_GPU_PTX_TYPE_SIZE_H_
#define MUSTER_TESTS_GPU_PTX_TYPE_SIZE_H_

#include <cstddef>
#include <string_view>

namespace muster::ptx {

// Bytes of a type named without its dot (u8, b32, f64, ...); 0 for other names and for pred.
inline size_t TypeBytes(std::string_view type) {
  if (type.size() < 2 || std::string_view("usbf").find(type[0]) == std::string_view::npos) return 0;
  const std::string_view bits = type.substr(1);
  if (bits == "8") return type[0] == 'f' ? 0 : 1;
  if (bits == "16") return 2;
  if (bits == "32") return 4;
  return bits == "64" ? 8 : 0;
}

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_TYPE_SIZE_H_
