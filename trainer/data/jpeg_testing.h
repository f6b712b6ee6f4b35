// For tests: JPEG files of every kind that the decoder must support.
#ifndef MUSTER_TRAINER_DATA_JPEG_TESTING_H_
#define MUSTER_TRAINER_DATA_JPEG_TESTING_H_

#include <cstdint>
#include <string>

namespace muster::data {

struct JpegOptions {
  int height = 48;
  int width = 64;
  int components = 3;  // 1: grey, 3: colour, 4: CMYK
  int quality = 90;
  // Samples of the first component per sample of the others, in each direction.
  int horizontal_sampling = 2;
  int vertical_sampling = 2;
  bool progressive = false;
  int restart_interval = 0;  // blocks between restart markers; 0: none
  uint32_t seed = 1;
};

// Returns a JPEG file with smooth waves, edges and some noise, drawn from the seed.
std::string EncodeJpeg(const JpegOptions& options);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_JPEG_TESTING_H_
