// JSON of a loss scale, in the files of checkpoints on disk and in memory.
#ifndef MUSTER_TRAINER_CHECKPOINT_LOSS_SCALE_JSON_H_
#define MUSTER_TRAINER_CHECKPOINT_LOSS_SCALE_JSON_H_

#include <cstdint>
#include <optional>
#include <type_traits>

#include "nlohmann/json.hpp"
#include "trainer/precision/loss_scale.h"

namespace muster::train {

inline constexpr char kLossScaleKey[] = "loss_scale";

// Adds the loss scale to `json`, if there is one.
inline void AddLossScale(const std::optional<LossScaleState>& state, nlohmann::ordered_json& json) {
  if (!state.has_value()) return;
  json[kLossScaleKey] = {{"scale", state->scale},
                         {"clean_steps", state->clean_steps},
                         {"skipped_steps", state->skipped_steps},
                         {"overflows_in_row", state->overflows_in_row}};
}

// The member, or `otherwise` if it is missing or has another type. A count is an integer from 0.
template <typename Number>
Number NumberIn(const nlohmann::ordered_json& json, const char* key, Number otherwise) {
  const auto member = json.find(key);
  if (member == json.end()) return otherwise;
  const bool is_valid =
      std::is_integral_v<Number> ? member->is_number_unsigned() : member->is_number();
  return is_valid ? member->template get<Number>() : otherwise;
}

// The loss scale in `json`; members that are missing or have another type are 0.
inline std::optional<LossScaleState> LossScaleIn(const nlohmann::ordered_json& json) {
  const auto found = json.find(kLossScaleKey);
  if (found == json.end() || !found->is_object()) return std::nullopt;
  return LossScaleState{.scale = NumberIn(*found, "scale", 0.0),
                        .clean_steps = NumberIn(*found, "clean_steps", uint64_t{0}),
                        .skipped_steps = NumberIn(*found, "skipped_steps", uint64_t{0}),
                        .overflows_in_row = NumberIn(*found, "overflows_in_row", uint64_t{0})};
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_LOSS_SCALE_JSON_H_
