#include "cli/completion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/exit_code.h"
#include "cli/output/words.h"
#include "cli/verb.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/explain.h"

namespace muster::cli {
namespace {

// Call timeout: completion must not keep the user waiting.
constexpr absl::Duration kPatience = absl::Milliseconds(500);

std::vector<Candidate> Named(const std::vector<std::string>& texts) {
  std::vector<Candidate> candidates;
  for (const std::string& text : texts) candidates.push_back({text, ""});
  return candidates;
}

std::vector<Candidate> States() {
  std::vector<Candidate> states;
  for (int i = 1; i < v1::JobState_ARRAYSIZE; ++i) {
    if (v1::JobState_IsValid(i)) {
      states.push_back(
          {absl::AsciiStrToLower(v1::JobState_Name(static_cast<v1::JobState>(i))), ""});
    }
  }
  return states;
}

std::vector<Candidate> Fields(bool with_values, absl::string_view current) {
  const size_t equals = current.find('=');
  if (with_values && equals != absl::string_view::npos) {
    std::vector<Candidate> values;
    for (const std::string& word : spec::WordsOf(current.substr(0, equals))) {
      values.push_back({absl::StrCat(current.substr(0, equals + 1), word), ""});
    }
    return values;
  }
  std::vector<Candidate> fields;
  for (const std::string& path : spec::FieldPaths()) {
    const std::string text = spec::ExplainField(path)->text;
    fields.push_back({with_values ? path + "=" : path, text.substr(0, text.find(". "))});
  }
  return fields;
}

std::vector<Candidate> ValuesOf(const std::string& kind, absl::string_view current,
                                const std::vector<std::string>& common,
                                const NameLister& list_names) {
  if (kind == "JOB" || kind == "NODE") return list_names(kind, common);
  if (kind == "SOURCE") {  // JOB:PATH
    std::vector<Candidate> jobs = list_names("JOB", common);
    for (Candidate& job : jobs) job.text += ":";
    return jobs;
  }
  if (kind == "FIELD") return Fields(/*with_values=*/false, current);
  if (kind == "FIELD=VALUE") return Fields(/*with_values=*/true, current);
  if (kind == "STATE") return States();
  if (kind == "FORMAT") {
    std::vector<Candidate> formats;
    for (const auto& entry : Outputs()) formats.push_back({entry.first, ""});
    return formats;
  }
  if (kind == "FILE" || kind == "DIR" || kind == "PATH" || kind == "DEST") {
    return {{kFileCandidate, ""}};
  }
  if (absl::StrContains(kind, '|')) return Named(absl::StrSplit(kind, '|'));
  return {};
}

// Reads the words before the one at the cursor.
class Reader {
 public:
  explicit Reader(const CLI::App& program) : program_(program), app_(&program) {}

  void Read(const std::string& word) {
    if (pending_ != nullptr) {
      Take(*pending_, word);
      pending_ = nullptr;
    } else if (absl::StartsWith(word, "-") && word != "-") {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      const CLI::Option* option = Find(parts.first);
      if (option == nullptr || option->get_items_expected_max() == 0) return;
      if (absl::StrContains(word, '=')) {
        Take(*option, parts.second);
      } else {
        pending_ = option;
      }
    } else if (const CLI::App* verb = FindVerb(word); verb != nullptr) {
      app_ = verb;
    } else {
      ++positionals_;
    }
  }

  const CLI::Option* Find(const std::string& name) const {
    for (const CLI::App* app = app_; app != nullptr; app = app->get_parent()) {
      for (const CLI::Option* option : app->get_options()) {
        if (!option->get_positional() && option->check_name(name)) return option;
      }
    }
    return nullptr;
  }

  // The next positional argument, or null if there is none.
  const CLI::Option* Positional() const {
    const CLI::Option* last = nullptr;
    size_t index = 0;
    for (const CLI::Option* option : app_->get_options()) {
      if (!option->get_positional()) continue;
      if (index++ == positionals_) return option;
      last = option;
    }
    const bool repeats = last != nullptr && last->get_items_expected_max() > 1;
    return repeats ? last : nullptr;
  }

  const CLI::App& app() const { return *app_; }
  const CLI::Option* pending() const { return pending_; }
  const std::vector<std::string>& common() const { return common_; }

 private:
  void Take(const CLI::Option& option, const std::string& value) {
    const std::vector<const CLI::Option*> of_program = program_.get_options();
    if (std::find(of_program.begin(), of_program.end(), &option) != of_program.end()) {
      common_.push_back(absl::StrCat("--", option.get_lnames().front(), "=", value));
    }
  }
  const CLI::App* FindVerb(const std::string& name) const {
    for (const CLI::App* verb : app_->get_subcommands({})) {
      if (verb->get_name() == name) return verb;
    }
    return nullptr;
  }

  const CLI::App& program_;
  const CLI::App* app_;
  const CLI::Option* pending_ = nullptr;  // the option whose value is the next word
  size_t positionals_ = 0;
  std::vector<std::string> common_;
};

std::vector<Candidate> OptionNames(const CLI::App& verb) {
  std::vector<Candidate> names;
  for (const CLI::App* app = &verb; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional() || (app != &verb && option == app->get_help_ptr())) continue;
      names.push_back(
          {absl::StrCat("--", option->get_lnames().front()), option->get_description()});
    }
  }
  return names;
}

std::vector<Candidate> Unfiltered(const Reader& reader, const std::string& current,
                                  const NameLister& list_names) {
  if (reader.pending() != nullptr) {
    return ValuesOf(reader.pending()->get_type_name(), current, reader.common(), list_names);
  }
  if (absl::StartsWith(current, "-")) {
    const size_t equals = current.find('=');
    if (equals == std::string::npos) return OptionNames(reader.app());
    const CLI::Option* option = reader.Find(current.substr(0, equals));
    if (option == nullptr) return {};
    std::vector<Candidate> values =
        ValuesOf(option->get_type_name(), current.substr(equals + 1), reader.common(), list_names);
    for (Candidate& value : values) {
      if (value.text != kFileCandidate) value.text.insert(0, current, 0, equals + 1);
    }
    return values;
  }
  std::vector<Candidate> candidates;
  for (const CLI::App* verb : reader.app().get_subcommands({})) {
    candidates.push_back({verb->get_name(), verb->get_description()});
  }
  if (const CLI::Option* next = reader.Positional(); next != nullptr) {
    const std::string name = next->get_name(true, false);
    const std::string kind =
        absl::StrContains(next->get_type_name(), '|') ? next->get_type_name() : name;
    for (Candidate& value : ValuesOf(kind, current, reader.common(), list_names)) {
      candidates.push_back(std::move(value));
    }
  }
  return candidates;
}

std::vector<Candidate> ListNames(const Context& context, const std::string& kind) {
  ClusterClient::Options options = context.client_options();
  options.patience = absl::ZeroDuration();
  options.call_timeout = kPatience;
  ClusterClient client(options);
  std::vector<Candidate> names;
  if (kind == "NODE") {
    const absl::StatusOr<v1::ListNodesResponse> response = client.ListNodes();
    if (!response.ok()) return {};
    for (const v1::Node& node : response->nodes()) {
      names.push_back({node.name(), absl::AsciiStrToLower(v1::NodeState_Name(node.state()))});
    }
    return names;
  }
  v1::ListJobsRequest request;
  request.set_include_finished(true);
  request.set_limit(200);
  const absl::StatusOr<v1::ListJobsResponse> response = client.ListJobs(request);
  if (!response.ok()) return {};
  for (const v1::Job& job : response->jobs()) {
    names.push_back({job.job_id(), absl::AsciiStrToLower(v1::JobState_Name(job.state()))});
  }
  return names;
}

}  // namespace

std::vector<Candidate> Candidates(const CLI::App& program, const std::vector<std::string>& words,
                                  const NameLister& list_names) {
  const std::string current = words.empty() ? "" : words.back();
  Reader reader(program);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    // The rest is a user's command.
    if (words[i] == "--") return {{kFileCandidate, ""}};
    reader.Read(words[i]);
  }
  std::vector<Candidate> candidates;
  for (Candidate& candidate : Unfiltered(reader, current, list_names)) {
    if (candidate.text == kFileCandidate || absl::StartsWith(candidate.text, current)) {
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

int Complete(const CLI::App& program, Context& context, const std::vector<std::string>& words,
             const std::function<bool(const std::vector<std::string>& arguments)>& parse) {
  const auto list_names = [&](const std::string& kind, std::vector<std::string> common) {
    // Parsing requires a verb; its action is not run.
    common.push_back("version");
    return parse(common) ? ListNames(context, kind) : std::vector<Candidate>();
  };
  for (const Candidate& candidate : Candidates(program, words, list_names)) {
    context.console.Out(
        absl::StrCat(Printable(candidate.text), "\t", Printable(candidate.description), "\n"));
  }
  return kExitSuccess;
}

}  // namespace muster::cli
