// Writes JPEG files in folders of classes, as an image_folder dataset. A few images are drawn; the
// others are hard links to them, because the time to decode a file does not depend on its contents.
//
//   make_jpegs FOLDER IMAGES WIDTH HEIGHT
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "trainer/data/jpeg_testing.h"

namespace {

constexpr int kClasses = 10, kDrawn = 100, kTestImages = 50;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: make_jpegs FOLDER IMAGES WIDTH HEIGHT\n");
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  const int images = std::atoi(argv[2]);
  std::error_code error;
  const auto path_of = [&](const char* split, int i) {
    const auto place = folder / split / ("class-" + std::to_string(i % kClasses));
    std::filesystem::create_directories(place, error);
    return place / (std::to_string(i) + ".jpg");
  };
  muster::data::JpegOptions options;
  options.width = std::atoi(argv[3]);
  options.height = std::atoi(argv[4]);
  const int drawn = std::min(images, kDrawn);
  for (int i = 0; i < drawn && !error; ++i) {
    options.seed = static_cast<uint32_t>(i) + 1;
    const std::string bytes = muster::data::EncodeJpeg(options);
    std::ofstream file(path_of("train", i), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) error = std::make_error_code(std::errc::io_error);
  }
  // kDrawn is a multiple of kClasses, so that an image stays in its class.
  for (int i = drawn; i < images && !error; ++i) {
    std::filesystem::create_hard_link(path_of("train", i % drawn), path_of("train", i), error);
  }
  for (int i = 0; i < kTestImages && !error; ++i) {
    std::filesystem::create_hard_link(path_of("train", i % drawn), path_of("val", i), error);
  }
  if (!error) return 0;
  std::fprintf(stderr, "make_jpegs: %s: %s\n", argv[1], error.message().c_str());
  return 73;
}
