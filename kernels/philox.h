// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC'11).
//
// A random number is a pure function of (key, counter) without state, so that draws for a sample, a
// parameter or a layer do not depend on the rank or the order of draws.
#ifndef MUSTER_KERNELS_PHILOX_H_
#define MUSTER_KERNELS_PHILOX_H_

#include <array>
#include <cstdint>

#include "kernels/host_device.h"

namespace muster::kernels {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Four independent words, uniform over 32 bits.
MUSTER_HOST_DEVICE constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

MUSTER_HOST_DEVICE constexpr PhiloxKey MakePhiloxKey(uint64_t value) {
  return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
}

// Derives the key for one of several purposes under the same seed.
MUSTER_HOST_DEVICE constexpr PhiloxKey DerivePhiloxKey(uint64_t seed, uint64_t purpose) {
  const PhiloxCounter words = Philox4x32(
      {static_cast<uint32_t>(purpose), static_cast<uint32_t>(purpose >> 32), 0, 0x6B657973},
      MakePhiloxKey(seed));
  return {words[0], words[1]};
}

// Returns a number in [0, 1), a multiple of 2^-24, exact in float.
MUSTER_HOST_DEVICE constexpr float Uniform01(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

// Returns a number in [0, bound), by multiplication; the bias is below bound / 2^32.
MUSTER_HOST_DEVICE constexpr uint32_t UniformBelow(uint32_t word, uint32_t bound) {
  return static_cast<uint32_t>((uint64_t{word} * bound) >> 32);
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_PHILOX_H_
