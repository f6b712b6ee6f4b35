// Edits of protobuf messages that fuzz inputs encode. Mutated bytes of a message would mostly fail
// to parse.
#ifndef MUSTER_TESTS_FUZZ_EDIT_MESSAGE_H_
#define MUSTER_TESTS_FUZZ_EDIT_MESSAGE_H_

#include <string>

#include "absl/types/span.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "google/protobuf/message.h"

namespace muster::fuzz {

// Applies one edit: sets or clears a field, or adds, edits or removes an element of a list, of the
// message or of one inside. Numbers are often limits of their types. Texts are UTF-8, and often
// among `words`.
void EditMessage(FuzzedDataProvider& input, absl::Span<const std::string> words,
                 google::protobuf::Message& message);

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_EDIT_MESSAGE_H_
