#include "spec/yaml/overrides.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/text/nearest.h"
#include "spec/schema.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"

namespace muster::spec {
namespace {

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

void RemoveAxis(absl::string_view path, google::protobuf::RepeatedPtrField<v1::ArrayAxis>& matrix) {
  matrix.erase(std::remove_if(matrix.begin(), matrix.end(),
                              [path](const v1::ArrayAxis& axis) { return axis.field() == path; }),
               matrix.end());
}

}  // namespace

namespace {

YAML::Node Load(const std::string& text, YamlReader& reader) {
  // YAML::LoadAll cannot be used: after a stray bracket it returns empty documents without end.
  // YAML::Load alone ignores everything after the first document.
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

// Throws an error about the tab if the line of `error`, or the nearest one before it that begins
// with white space, has one in its indentation: yaml-cpp then reports what it took the line for.
void ThrowForTab(const std::string& text, const YAML::Exception& error) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (int i = std::min<int>(error.mark.line, static_cast<int>(lines.size()) - 1); i >= 0; --i) {
    const size_t begin = std::min(lines[i].find_first_not_of(" \t"), lines[i].size());
    if (begin == 0 && i < error.mark.line) return;
    if (!absl::StrContains(lines[i].substr(0, begin), '\t')) continue;
    YAML::Mark mark;
    mark.line = i;
    throw YAML::ParserException(mark, "the line is indented with a tab; use spaces");
  }
}

}  // namespace

YAML::Node LoadDocument(const std::string& text, YamlReader& reader) {
  try {
    return Load(text, reader);
  } catch (const YAML::ParserException& error) {
    ThrowForTab(text, error);
    throw;
  }
}

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
      return reader.AddUnknownField(YAML::Mark::null_mark(), *message->GetDescriptor(), where,
                                    names[i]);
    }
    where = JoinPath(where, names[i]);
    if (i + 1 == names.size()) {
      // `a.b=` clears the field, so that its default applies.
      if (field->name() == "env") spec.clear_secret_env();
      if (value.empty() || field->name() == "secret_env") {
        message->GetReflection()->ClearField(message, field);
      }
      if (value.empty()) return;
      // YAML's other words for nothing, such as ~, are the text that a shell did not expand.
      const bool text = node.IsNull() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
      return reader.ReadField(text ? YAML::Node(std::string(value)) : node, where, *field,
                              *message);
    }
    if (field->is_map()) {
      // The rest of the path, including dots, is the key.
      const std::string key(path.substr(where.size() + 1));
      return reader.ReadMapEntry(key, node.IsNull() ? YAML::Node(std::string()) : node, where,
                                 *field, *message);
    }
    if (FormOf(*field) == FieldForm::kMatrix) {
      const std::string axis(path.substr(where.size() + 1));
      RemoveAxis(axis, *spec.mutable_array()->mutable_matrix());
      return reader.ReadAxis(axis, node, where, *field, *message);
    }
    if (field->is_repeated()) {
      reader.AddError(YAML::Mark::null_mark(), where, " is a list; set it as a whole: ", where,
                      "=[…]");
      return;
    }
    if (field->message_type() == nullptr || FormOf(*field) == FieldForm::kDuration) {
      reader.AddError(YAML::Mark::null_mark(), where, " has no fields; unknown path ",
                      Quoted(path));
      return;
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

bool CatchYamlErrors(YamlReader& reader, absl::FunctionRef<void()> read) {
  try {
    read();
    return true;
  } catch (const YAML::DeepRecursion& error) {
    reader.AddError(error.mark, "nested too deeply");
  } catch (const YAML::Exception& error) {
    reader.AddError(error.mark, "not YAML: ", error.msg);
  } catch (const std::exception& error) {
    reader.AddError(YAML::Mark::null_mark(), error.what());
  }
  return false;
}

absl::Status SetPath(absl::string_view path, absl::string_view value, absl::string_view source,
                     v1::JobSpec& spec) {
  YamlReader reader(source, /*with_lines=*/false);
  CatchYamlErrors(reader, [&] { ReadOverride(path, value, reader, spec); });
  return reader.status();
}

}  // namespace muster::spec
