// Functions that build the table of spec/fields.h, and constants that they share. Keys are
// "Message.field" without the package.
#ifndef MUSTER_SPEC_FIELD_TABLE_H_
#define MUSTER_SPEC_FIELD_TABLE_H_

#include <map>
#include <string>

#include "spec/fields.h"

namespace muster::spec {

using FieldTable = std::map<std::string, Field>;

// Each function adds the entries of the messages in its comment.
void AddJobFields(FieldTable& table);       // JobSpec, sections for placement and failures
void AddTrainFields(FieldTable& table);     // TrainSpec, its data, precision and output sections
void AddModelFields(FieldTable& table);     // ModelSpec and its layers
void AddLearningFields(FieldTable& table);  // optimizer, schedule, objective and strategy

// Sets the synonyms of entries that the functions above have added.
void AddSynonyms(FieldTable& table);

constexpr Range Between(double low, double high) { return {.low = low, .high = high}; }
constexpr Range AtLeast(double low) { return {.low = low}; }
constexpr Range Above(double low) { return {.low = low, .low_excluded = true}; }
// [0, 1)
constexpr Range FromZeroBelowOne() { return {.low = 0, .high = 1, .high_excluded = true}; }
// (0, 1)
constexpr Range BetweenZeroAndOne() {
  return {.low = 0, .high = 1, .low_excluded = true, .high_excluded = true};
}
// (0, 1]
constexpr Range AboveZeroToOne() { return {.low = 0, .high = 1, .low_excluded = true}; }

inline constexpr double kTenYears = 10.0 * 365 * 24 * 3600;  // in seconds
inline constexpr double kMaxEpochs = 1e6;
inline constexpr double kMaxWidth = 65536;  // width of a layer
inline constexpr double kMaxThreads = 1024;
inline constexpr double kMaxKernel = 1024;
inline constexpr double kMaxBatch = 1 << 24;
inline constexpr double kMaxLossScale = 1 << 24;  // also the limit of its growth during training

}  // namespace muster::spec

#endif  // MUSTER_SPEC_FIELD_TABLE_H_
