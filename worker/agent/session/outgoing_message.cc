#include "worker/agent/session/outgoing_message.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/report_bounds.h"
#include "common/text/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace muster::agent {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kShortTextBytes = 256;

void CleanTexts(Message& message);

void CleanText(const Reflection& reflection, const FieldDescriptor& field, Message& message) {
  std::string scratch;
  if (!field.is_repeated()) {
    const std::string& text = reflection.GetStringReference(message, &field, &scratch);
    std::string clean = ToUtf8(text);
    if (clean != text) reflection.SetString(&message, &field, std::move(clean));
    return;
  }
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const std::string& text = reflection.GetRepeatedStringReference(message, &field, i, &scratch);
    std::string clean = ToUtf8(text);
    if (clean != text) reflection.SetRepeatedString(&message, &field, i, std::move(clean));
  }
}

void CleanMessages(const Reflection& reflection, const FieldDescriptor& field, Message& message) {
  if (!field.is_repeated()) return CleanTexts(*reflection.MutableMessage(&message, &field));
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    CleanTexts(*reflection.MutableRepeatedMessage(&message, &field, i));
  }
}

void CleanTexts(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->type() == FieldDescriptor::TYPE_STRING) CleanText(reflection, *field, message);
    if (field->type() == FieldDescriptor::TYPE_MESSAGE) CleanMessages(reflection, *field, message);
  }
}

void Shorten(v1::RankReport& rank) {
  if (rank.has_exit()) {
    rank.mutable_exit()->clear_stderr_tail();
    if (rank.exit().has_failure()) {
      KeepFirst(kShortTextBytes, *rank.mutable_exit()->mutable_failure()->mutable_message());
    }
    rank.clear_join();
  }
  if (rank.has_failure()) KeepFirst(kShortTextBytes, *rank.mutable_failure()->mutable_message());
  if (rank.has_summary()) {
    v1::TrainSummary& summary = *rank.mutable_summary();
    summary.clear_losses();
    summary.clear_step_end_seconds();
    summary.clear_evaluations();
    summary.clear_devices();
    summary.clear_stages();
  }
  rank.clear_checkpoint();
  AddWarning(absl::StrCat("the report is shortened, because the reports of its node exceed ",
                          limits::kMessageBytes, " bytes"),
             rank);
}

template <typename Reports>
void AddRanks(Reports& reports, std::vector<v1::RankReport*>& ranks) {
  for (v1::GenerationReport& report : reports) {
    for (v1::RankReport& rank : *report.mutable_ranks()) ranks.push_back(&rank);
  }
}

std::vector<v1::RankReport*> RanksIn(v1::WorkerMessage& message) {
  std::vector<v1::RankReport*> ranks;
  if (message.has_hello()) AddRanks(*message.mutable_hello()->mutable_inventory(), ranks);
  if (message.has_heartbeat()) AddRanks(*message.mutable_heartbeat()->mutable_progress(), ranks);
  if (message.has_report()) {
    for (v1::RankReport& rank : *message.mutable_report()->mutable_ranks()) ranks.push_back(&rank);
  }
  return ranks;
}

}  // namespace

void MakeReadable(v1::WorkerMessage& message, size_t limit_bytes) {
  CleanTexts(message);
  if (message.ByteSizeLong() <= limit_bytes) return;
  std::vector<std::pair<size_t, v1::RankReport*>> largest_first;
  for (v1::RankReport* rank : RanksIn(message)) {
    largest_first.emplace_back(rank->ByteSizeLong(), rank);
  }
  std::sort(largest_first.begin(), largest_first.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  size_t size_bytes = message.ByteSizeLong();
  for (const auto& [rank_bytes, rank] : largest_first) {
    if (size_bytes <= limit_bytes) return;
    Shorten(*rank);
    size_bytes -= rank_bytes - std::min(rank_bytes, rank->ByteSizeLong());
  }
}

}  // namespace muster::agent
