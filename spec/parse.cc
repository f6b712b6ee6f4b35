#include <exception>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/nearest.h"
#include "common/status.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/utf8.h"
#include "spec/yaml_reader.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace muster::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status SizeError(absl::string_view source, size_t size_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      source, ": the spec is ", size_bytes, " bytes long; the limit is ", limits::kSpecBytes));
}

// An event handler that builds nothing and only records where the latest document begins.
class DocumentCounter : public YAML::EventHandler {
 public:
  const YAML::Mark& last_start() const { return last_start_; }

  void OnDocumentStart(const YAML::Mark& mark) override { last_start_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark last_start_;
};

// The single document of `text`; null, with an error added, if there are several. YAML::LoadAll
// cannot be used: after a stray bracket it returns empty documents without end. YAML::Load alone
// ignores everything after the first document.
YAML::Node LoadDocument(const std::string& text, YamlReader& reader) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter counter;
  if (!parser.HandleNextDocument(counter)) return YAML::Node();
  if (parser.HandleNextDocument(counter)) {
    reader.AddError(counter.last_start(), "a second YAML document begins here; expected only one");
    return YAML::Node();
  }
  return YAML::Load(text);
}

void ReadText(absl::string_view text, YamlReader& reader, v1::JobSpec& spec) {
  const YAML::Node document = LoadDocument(std::string(text), reader);
  if (!reader.status().ok()) return;
  if (document.IsNull()) {
    reader.AddError(YAML::Mark::null_mark(), "the spec is empty");
  } else {
    reader.ReadMessage(document, "", spec);
  }
}

// Reads `value` into the field at `path`.
void ReadOverride(absl::string_view path, absl::string_view value, YamlReader& reader,
                  v1::JobSpec& spec) {
  const YAML::Node node = LoadDocument(std::string(value), reader);
  if (!reader.status().ok()) return;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  Message* message = &spec;
  std::string where;
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) {
      reader.AddError(YAML::Mark::null_mark(),
                      UnknownField(*message->GetDescriptor(), where, names[i]));
      return;
    }
    where = JoinPath(where, names[i]);
    if (i + 1 == names.size()) {
      if (node.IsNull() && !value.empty() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reader.AddError(YAML::Mark::null_mark(),
                        absl::StrCat(where, ": ", Quoted(value),
                                     " is null in YAML; quote it, or leave the value empty to "
                                     "reset the field",
                                     where == "workdir" && value == "~"
                                         ? "; for the home folder, use --workdir '~'"
                                         : ""));
        return;
      }
      // `a.b=` clears the field, so that its default applies.
      node.IsNull() ? message->GetReflection()->ClearField(message, field)
                    : reader.ReadField(node, where, *field, *message);
      return;
    }
    if (field->is_map()) {
      // The rest of the path, including dots, is the key.
      const std::string key(path.substr(where.size() + 1));
      return reader.ReadMapEntry(key, node.IsNull() ? YAML::Node(std::string()) : node, where,
                                 *field, *message);
    }
    if (field->is_repeated()) {
      reader.AddError(YAML::Mark::null_mark(),
                      absl::StrCat(where, " is a list; set it as a whole: ", where, "=[…]"));
      return;
    }
    if (field->message_type() == nullptr || FormOf(*field) == FieldForm::kDuration) {
      reader.AddError(YAML::Mark::null_mark(),
                      absl::StrCat(where, " has no fields; unknown path ", Quoted(path)));
      return;
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

// Runs `read` and turns exceptions of yaml-cpp into errors.
template <typename Read>
absl::Status Guarded(YamlReader& reader, Read read) {
  try {
    read();
  } catch (const YAML::DeepRecursion& error) {
    reader.AddError(error.mark, "nested too deeply");
  } catch (const YAML::Exception& error) {
    reader.AddError(error.mark, absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    reader.AddError(YAML::Mark::null_mark(), error.what());
  }
  return reader.status();
}

}  // namespace

absl::StatusOr<v1::JobSpec> Parse(absl::string_view text, absl::string_view source,
                                  absl::Span<const std::string> overrides) {
  if (text.size() > limits::kSpecBytes) return SizeError(source, text.size());
  // yaml-cpp accepts some invalid UTF-8, but a protobuf string cannot contain it.
  if (!IsUtf8(text)) return absl::InvalidArgumentError(absl::StrCat(source, ": is not UTF-8"));
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": contains a NUL character"));
  }
  v1::JobSpec spec;
  YamlReader reader(source, /*with_lines=*/true);
  RETURN_IF_ERROR(Guarded(reader, [&] { ReadText(text, reader, spec); }));

  for (const std::string& override_text : overrides) {
    const std::string override_source = absl::StrCat("--set ", Quoted(override_text));
    if (override_text.size() > limits::kSpecBytes) {
      return SizeError("--set", override_text.size());
    }
    if (!IsUtf8(override_text)) {
      return absl::InvalidArgumentError(absl::StrCat(override_source, ": is not UTF-8"));
    }
    const std::vector<std::string> parts = absl::StrSplit(override_text, absl::MaxSplits('=', 1));
    if (parts.size() != 2 || parts[0].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(override_source, ": expected field=value, as in train.epochs=3"));
    }
    YamlReader override_reader(override_source, /*with_lines=*/false);
    RETURN_IF_ERROR(
        Guarded(override_reader, [&] { ReadOverride(parts[0], parts[1], override_reader, spec); }));
  }
  if (spec.ByteSizeLong() > limits::kSpecBytes) return SizeError(source, spec.ByteSizeLong());
  return spec;
}

}  // namespace muster::spec
