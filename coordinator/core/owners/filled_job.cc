#include "coordinator/core/owners/filled_job.h"

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "coordinator/core/owners/visibility.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace muster::core {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Layers contain layers.
constexpr int kDepth = 8;

void Fill(Message& message, const std::string& text, int depth) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    const bool repeated = field->is_repeated();
    const absl::string_view name = absl::StripPrefix(field->full_name(), "muster.v1.");
    const std::string value = absl::c_linear_search(PublicTexts(), name) ? "public" : text;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        repeated ? reflection.AddString(&message, field, value)
                 : reflection.SetString(&message, field, value);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth == kDepth) break;
        Fill(repeated ? *reflection.AddMessage(&message, field)
                      : *reflection.MutableMessage(&message, field),
             value == "public" ? value : text, depth + 1);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        if (!repeated) reflection.SetUInt32(&message, field, 1);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        if (!repeated) reflection.SetInt32(&message, field, 1);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        if (!repeated) reflection.SetUInt64(&message, field, 1);
        break;
      default:
        break;
    }
  }
}

}  // namespace

v1::Job FilledJob(const std::string& text) {
  v1::Job job;
  Fill(job, text, 0);
  return job;
}

}  // namespace muster::core
