// Decodes a JPEG with Muster's decoder: jpeg_driver FILE writes a PPM image to stdout. jpeg_test.py
// compares it with Pillow.
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "common/status.h"
#include "trainer/data/jpeg_decoder.h"
#include "trainer/data/mapped_file.h"

namespace muster::data {
namespace {

absl::Status Run(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  JpegDecoder decoder;
  ASSIGN_OR_RETURN(const ImageSize size, decoder.Open(file.bytes()));
  const Region whole = {0, 0, static_cast<double>(size.height), static_cast<double>(size.width)};
  ASSIGN_OR_RETURN(const DecodedRegion decoded, decoder.Decode(whole, {INT64_MAX, INT64_MAX}));
  const ImageView& view = decoded.view;
  std::printf("P6 %d %d 255\n", static_cast<int>(view.width), static_cast<int>(view.height));
  for (int64_t y = 0; y < view.height; ++y) {
    std::fwrite(view.pixels + y * view.row_bytes, 3, static_cast<size_t>(view.width), stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace muster::data

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const absl::Status status = muster::data::Run(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
