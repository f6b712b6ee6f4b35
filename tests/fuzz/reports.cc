// Reports of ranks and messages of workers with any values: the worker, and again the coordinator,
// bring them within limits.
#include <algorithm>
#include <string>
#include <vector>

#include "common/limits.h"
#include "common/report_bounds.h"
#include "common/version.h"
#include "coordinator/service/checks/quarantine.h"
#include "coordinator/service/checks/validate.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "proto/muster/v1/worker.pb.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"

namespace muster {
namespace {

std::string Fields(const Corrections& corrections) {
  std::string fields;
  for (const Correction& correction : corrections) fields += correction.problem + "\n";
  return fields;
}

// The most bytes of any text in the message.
size_t LongestText(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  size_t longest = 0;
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        longest = std::max(longest, field->is_repeated()
                                        ? reflection.GetRepeatedString(message, field, i).size()
                                        : reflection.GetString(message, field).size());
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        longest =
            std::max(longest, LongestText(field->is_repeated()
                                              ? reflection.GetRepeatedMessage(message, field, i)
                                              : reflection.GetMessage(message, field)));
      }
    }
  }
  return longest;
}

void CorrectReport(FuzzedDataProvider& input, const std::vector<std::string>& words) {
  v1::RankReport report;
  while (input.remaining_bytes() > 0) fuzz::EditMessage(input, words, report);
  Clamp(report);
  const Corrections again = Clamp(report);
  fuzz::Check(again.empty(), "a corrected report is within limits", Fields(again));
  fuzz::Check(LongestText(report) <= limits::kStackBytes, "every text of a report has a limit",
              report.ShortDebugString());
}

void CorrectHello(FuzzedDataProvider& input, const std::vector<std::string>& words) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_name("node");
  hello.set_incarnation(1);
  while (input.remaining_bytes() > 0) fuzz::EditMessage(input, words, hello);
  if (!service::ValidateHello(hello).ok()) return;
  service::Quarantine(hello);
  const Corrections again = service::Quarantine(hello);
  fuzz::Check(again.empty(), "a corrected Hello is within limits", Fields(again));
  fuzz::Check(LongestText(hello) <= limits::kStackBytes, "every text of a Hello has a limit",
              hello.ShortDebugString());
}

void CorrectMessage(FuzzedDataProvider& input, const std::vector<std::string>& words) {
  v1::WorkerMessage message;
  while (input.remaining_bytes() > 0) fuzz::EditMessage(input, words, message);
  service::Quarantine(message);
  const Corrections again = service::Quarantine(message).corrections;
  fuzz::Check(again.empty() || message.kind_case() == v1::WorkerMessage::KIND_NOT_SET,
              "a corrected message is within limits", Fields(again));
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static const std::vector<std::string> words = {"job-1", "node-1", "world", "a", "1"};
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange(0, 2)) {
    case 0:
      CorrectReport(input, words);
      break;
    case 1:
      CorrectHello(input, words);
      break;
    default:
      CorrectMessage(input, words);
  }
  return 0;
}
