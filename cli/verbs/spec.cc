// `muster spec`: what can be said of a spec without a coordinator.
#include "spec/spec.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/spec/job_options.h"
#include "cli/spec/spec_file.h"
#include "cli/spec/spec_schema.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"
#include "spec/explain.h"

namespace muster::cli {
namespace {

constexpr char kExample[] =
    R"(# A Muster job. What is commented out shows a default or an alternative.
# Check it with `muster spec validate FILE`, run it with `muster run FILE`.
name: fashion-mnist              # default: the model's or the program's name

train:
  model: {name: small_cnn}       # small_cnn (batch_norm, dropout), mlp (hidden, dropout),
                                 # resnet18/34/50/101 (stochastic_depth, zero_init_residual, small_stem,
                                 # stem_pool), mobilenet_v2 (dropout, stochastic_depth)
  # model:                       # or a network of your own, in the terms of torch.nn
  #   layers:
  #     - conv2d: {out_channels: 32, kernel: 3, padding: 1}
  #     - relu
  #     - residual: {layers: [conv2d: {out_channels: 32, kernel: 3, padding: 1}, batch_norm2d]}
  #     - max_pool2d: {kernel: 2}
  #     - flatten
  #     - linear                 # as wide as there are classes
  dataset: {name: fashion_mnist, path: /usr/share/datasets/fashion-mnist}
  # dataset: {name: image_folder, path: /srv/images}   # or mnist, cifar10, cifar100
  # image_size: 28               # images are resized to it
  epochs: 3                      # or max_steps: 500; with both, whichever ends first
  global_batch: 256              # samples in one step, over all ranks
  # accumulation_steps: 1        # parts of a rank's share that are computed one after the other
  optimizer: {name: sgd, learning_rate: 0.1, momentum: 0.9, weight_decay: 5e-4}
  # optimizer: {name: adamw, learning_rate: 1e-3, weight_decay: 0.01}         # beta1, beta2, epsilon
  # optimizer: {name: lars, learning_rate: 0.6, momentum: 0.9}                # trust_coefficient
  #                              # all: exclude_norm_and_bias, clip_norm; sgd: nesterov
  schedule: {name: cosine, warmup_epochs: 0.5}      # or constant
  # schedule: {name: step, milestones: [30, 60], factor: 0.1}                 # or every_epochs
  # objective: {name: cross_entropy, label_smoothing: 0.0}
  # objective: {name: nt_xent, temperature: 0.5, negatives: global, projection: [512, 128]}
  augment: {crop_padding: 2, flip: true}
  # augment: {random_resized_crop: {min_scale: 0.08}, random_erasing: {probability: 0.5}}
  # sync_batch_norm: false       # true: statistics of all ranks' rows
  # ema: {decay: 0.999}          # evaluate an average of the weights
  # seed: 1
  # drop_last: false
  # evaluate_every_epochs: 0     # 0: only at the end
  # init_from: /path/model.safetensors
  # init_exclude: [fc.]          # what is not taken from it
  # checkpoint: {dir: /var/lib/muster/checkpoints/fashion-mnist, every_steps: 200, keep: 3}
  # tensorboard: {dir: /var/lib/muster/tensorboard/fashion-mnist, every_steps: 10}
  # strategy: {name: ddp, bucket_bytes: 25MiB}
  # precision: O0                # O1, O2, O3: bfloat16 or float16, ever more of it
  # mixed_precision: {dtype: bfloat16, gradient_dtype: auto}    # of O1 to O3
  # loader: {threads: 1, prefetch: 4}

# In place of train: any program, started once per rank.
# command: [/bin/sh, -c, 'echo rank $RANK of $WORLD_SIZE']
# env: {OMP_NUM_THREADS: 1}
# workdir: /srv/job

resources: {nodes: 1, ranks_per_node: 1}
# resources: {nodes: 2, ranks_per_node: 2, device: auto, devices_per_rank: 1, threads_per_rank: 1}
# backend: auto                  # auto, shm, gloo, hierarchical
# failure_timeout: 30s           # a rank or node silent for this long is lost
# grace_period: 30s              # from SIGTERM to SIGKILL
# on_lost_coordinator: continue  # or {stop_after: 10m}
# restart: {max: 3}
# time_limit: 1h                 # none by default
# priority: 0                    # higher goes first
)";

void PrintSpec(Context& context, const v1::JobSpec& spec, const std::string& text) {
  if (context.output == Output::kJson) {
    context.Print(ToJson(spec));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(spec.name(), "\n"));
  } else {
    context.console.Out(text);
  }
}

int Init(Context& context) {
  const absl::StatusOr<v1::JobSpec> spec = spec::Parse(kExample, "the example");
  if (!spec.ok()) return context.Fail(spec.status());
  PrintSpec(context, *spec, kExample);
  return kSuccess;
}

int Validate(Context& context, const std::string& path, const std::vector<std::string>& overrides) {
  absl::StatusOr<v1::JobSpec> spec = ReadSpecFile(path, overrides);
  if (!spec.ok()) return context.Fail(spec.status(), SpecExitCode(spec.status()));
  spec::ApplyDefaults(*spec);
  const absl::Status valid = spec::Validate(*spec);
  if (!valid.ok()) return context.Fail(valid, kBadSpec);
  PrintSpec(context, *spec, spec::ToYaml(*spec));
  return kSuccess;
}

std::string FieldTable(const spec::FieldExplanation& field, bool wide) {
  Table table(wide ? std::vector<std::string>{"FIELD", "TYPE", "DEFAULT", "WHAT IT IS"}
                   : std::vector<std::string>{"FIELD", "DEFAULT", "WHAT IT IS"});
  for (const std::string& name : field.fields) {
    const spec::FieldExplanation child =
        *spec::ExplainField(field.path.empty() ? name : absl::StrCat(field.path, ".", name));
    // Its first sentence.
    const std::string text = child.text.substr(0, child.text.find(". "));
    std::vector<std::string> row = {name, child.default_value, text};
    if (wide) row.insert(row.begin() + 1, child.type);
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string ExplanationText(const spec::FieldExplanation& field, bool wide) {
  std::string out;
  if (!field.path.empty()) absl::StrAppend(&out, field.path, ": ", field.type, "\n");
  absl::StrAppend(&out, field.text, "\n");
  if (!field.words.empty())
    absl::StrAppend(&out, "One of: ", absl::StrJoin(field.words, ", "), "\n");
  if (!field.words_elsewhere.empty()) {
    absl::StrAppend(&out, "Not in this build: ", absl::StrJoin(field.words_elsewhere, ", "), "\n");
  }
  if (!field.default_value.empty()) absl::StrAppend(&out, "Default: ", field.default_value, "\n");
  if (!field.fields.empty()) absl::StrAppend(&out, "\n", FieldTable(field, wide));
  return out;
}

nlohmann::ordered_json ExplanationJson(const spec::FieldExplanation& field) {
  nlohmann::ordered_json json;
  json["field"] = field.path;
  json["type"] = field.type;
  json["text"] = field.text;
  if (!field.default_value.empty()) json["default"] = field.default_value;
  if (!field.words.empty()) json["words"] = field.words;
  if (!field.words_elsewhere.empty()) json["words_not_in_this_build"] = field.words_elsewhere;
  if (!field.fields.empty()) json["fields"] = field.fields;
  return json;
}

int Explain(Context& context, const std::string& path) {
  const absl::StatusOr<spec::FieldExplanation> field = spec::ExplainField(path);
  if (!field.ok()) return context.Fail(field.status());
  if (context.structured()) {
    context.Print(ExplanationJson(*field));
  } else if (context.output == Output::kName) {
    // What it can be followed by; else itself.
    if (field->fields.empty()) context.console.Out(absl::StrCat(field->path, "\n"));
    for (const std::string& name : field->fields) {
      context.console.Out(absl::StrCat(field->path, field->path.empty() ? "" : ".", name, "\n"));
    }
  } else {
    context.console.Out(ExplanationText(*field, context.output == Output::kWide));
  }
  return kSuccess;
}

int Schema(Context& context) {
  if (context.output == Output::kName) {
    for (const std::string& path : spec::FieldPaths()) context.console.Out(path + "\n");
  } else if (context.output == Output::kYaml) {
    context.Print(SpecSchema());
  } else {
    context.console.Out(JsonText(SpecSchema()));
  }
  return kSuccess;
}

void AddValidate(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "validate", kSpecVerbs,
      {.summary = "Print a spec with its defaults, or what is wrong with it",
       .usage = "FILE [OPTIONS]",
       .paragraphs = {"Finds what the coordinator would refuse; what only a node can see, such as "
                      "missing data, is found when the job runs."},
       .exits = {{"0", "The spec is good"},
                 {"66", "FILE cannot be read"},
                 {"78", "The spec is wrong; each line on stderr says where and why"}},
       .examples = {{"muster spec validate job.yaml", "the spec as it would run"},
                    {"muster spec validate job.yaml --set resources.nodes=4",
                     "whether it is good for four nodes"}}});
  auto path = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  AddSpecOptions(verb, *path, *overrides, /*required=*/true);
  verb.callback([&context, path, overrides] {
    context.action = [&context, path, overrides] { return Validate(context, *path, *overrides); };
  });
}

void AddExplain(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(group, "explain", kSpecVerbs,
                       {.summary = "Explain a field of the spec",
                        .usage = "[FIELD] [OPTIONS]",
                        .paragraphs = {"Its type, meaning and default, and the fields inside it. "
                                       "Without FIELD: the spec as a whole."},
                        .examples = {{"muster spec explain train.optimizer", "a part of the spec"},
                                     {"muster spec explain resources.nodes", "a single field"}}});
  auto path = std::make_shared<std::string>();
  verb.add_option("FIELD", *path, "As in train.optimizer.name");
  verb.callback(
      [&context, path] { context.action = [&context, path] { return Explain(context, *path); }; });
}

}  // namespace

void AddSpecVerbs(CLI::App& app, Context& context) {
  Verb& group = AddVerb(app, "spec", kSpecVerbs,
                        {.summary = "Job specs: init, validate, explain, explain-plan, schema",
                         .usage = "VERB [OPTIONS]",
                         .paragraphs = {"None of these needs a coordinator."}});
  group.require_subcommand(1);
  AddVerb(group, "init", kSpecVerbs,
          {.summary = "Print a commented example",
           .usage = "[OPTIONS]",
           .examples = {{"muster spec init > job.yaml", "a spec to begin with"}}})
      .callback([&context] { context.action = [&context] { return Init(context); }; });
  AddValidate(group, context);
  AddExplain(group, context);
  AddExplainPlanVerb(group, context);
  AddVerb(group, "schema", kSpecVerbs,
          {.summary = "Print the JSON Schema of specs",
           .usage = "[OPTIONS]",
           .paragraphs = {"For editors and other programs; -o name lists every field instead."},
           .examples = {{"muster spec schema > job.schema.json",
                         "for an editor's YAML language server"}}})
      .callback([&context] { context.action = [&context] { return Schema(context); }; });
}

}  // namespace muster::cli
