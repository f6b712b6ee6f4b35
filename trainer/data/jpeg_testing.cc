#include "trainer/data/jpeg_testing.h"

// libjpeg's header needs size_t and FILE.
#include <cstddef>
#include <cstdio>
//
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

namespace muster::data {
namespace {

std::vector<uint8_t> DrawImage(const JpegOptions& options) {
  std::mt19937 random(options.seed);
  const double frequency = 0.05 + static_cast<double>(random() % 100) / 500;
  const int edge = static_cast<int>(random() % static_cast<uint32_t>(options.width));
  std::vector<uint8_t> pixels;
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x) {
      for (int c = 0; c < options.components; ++c) {
        const double wave = 60 * std::sin(frequency * (x + (c + 1) * y) + c);
        const double step = (x > edge) == (y % 23 > 11) ? 40 : -30;
        const double noise = static_cast<double>(random() % 20);
        pixels.push_back(static_cast<uint8_t>(std::clamp(118 + wave + step + noise, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

}  // namespace

std::string EncodeJpeg(const JpegOptions& options) {
  jpeg_compress_struct codec;
  jpeg_error_mgr errors;
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* buffer = nullptr;
  unsigned long size_bytes = 0;
  jpeg_mem_dest(&codec, &buffer, &size_bytes);
  codec.image_width = static_cast<JDIMENSION>(options.width);
  codec.image_height = static_cast<JDIMENSION>(options.height);
  codec.input_components = options.components;
  codec.in_color_space =
      options.components == 1 ? JCS_GRAYSCALE : (options.components == 3 ? JCS_RGB : JCS_CMYK);
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, options.quality, TRUE);
  if (options.components == 3) {
    codec.comp_info[0].h_samp_factor = options.horizontal_sampling;
    codec.comp_info[0].v_samp_factor = options.vertical_sampling;
  }
  if (options.progressive) jpeg_simple_progression(&codec);
  codec.restart_interval = static_cast<unsigned>(options.restart_interval);
  jpeg_start_compress(&codec, TRUE);
  std::vector<uint8_t> pixels = DrawImage(options);
  for (int y = 0; y < options.height; ++y) {
    JSAMPROW row = pixels.data() + static_cast<size_t>(y) * options.width * options.components;
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  std::string bytes(reinterpret_cast<char*>(buffer), size_bytes);
  std::free(buffer);
  return bytes;
}

}  // namespace muster::data
