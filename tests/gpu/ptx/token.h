// Splits PTX text into tokens.
#ifndef MUSTER_TESTS_GPU_PTX_TOKEN_H_
#define MUSTER_TESTS_GPU_PTX_TOKEN_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::ptx {

// A word (name, opcode with its modifiers, directive or number), a string in quotes, or one
// punctuation character. The text is empty at the end of the input.
struct Token {
  std::string_view text;
  uint32_t line = 0;  // from 1
};

// The tokens of `ptx`, which they refer to, without comments and with an empty token at the end.
// INVALID_ARGUMENT for a character or comment that is not PTX.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view ptx);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_TOKEN_H_
