// `muster spec`: what can be said of a spec without a coordinator.
#include "common/spec/spec.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/spec_file.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

constexpr char kExample[] =
    R"(# A Muster job. What is commented out shows a default or an alternative.
# Check it with `muster spec validate FILE`, run it with `muster run FILE`.
name: fashion-mnist              # default: the model's or the program's name

train:
  model: {name: small_cnn}       # small_cnn (batch_norm, dropout), mlp (hidden, dropout)
  dataset: {name: fashion_mnist, path: /usr/share/datasets/fashion-mnist}
  epochs: 3                      # or max_steps: 500; with both, whichever ends first
  global_batch: 256              # samples in one step, over all ranks
  optimizer: {name: sgd, learning_rate: 0.1, momentum: 0.9, weight_decay: 5e-4}
  schedule: {name: cosine, warmup_epochs: 0.5}      # or constant
  # objective: {name: cross_entropy, label_smoothing: 0.0}
  augment: {crop_padding: 2, flip: true}
  # seed: 1
  # drop_last: false
  # evaluate_every_epochs: 0     # 0: only at the end
  # init_from: /path/model.safetensors
  # checkpoint: {dir: /var/lib/muster/checkpoints/fashion-mnist, every_steps: 200, keep: 3}
  # strategy: {name: ddp, bucket_bytes: 25MiB}
  # precision: O0
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

int Validate(Context& context, const std::string& path, const std::vector<std::string>& overrides) {
  absl::StatusOr<v1::JobSpec> spec = ReadSpecFile(path, overrides);
  if (!spec.ok()) return context.Fail(spec.status(), SpecExitCode(spec.status()));
  spec::ApplyDefaults(*spec);
  const absl::Status valid = spec::Validate(*spec);
  if (!valid.ok()) return context.Fail(valid, kBadSpec);
  if (context.output == Output::kJson) {
    context.Print(ToJson(*spec));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(spec->name(), "\n"));
  } else {
    context.console.Out(spec::ToYaml(*spec));
  }
  return kSuccess;
}

}  // namespace

void AddSpecVerbs(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("spec", "Job specs; needs no coordinator");
  verb->require_subcommand(1);
  CLI::App* init = verb->add_subcommand("init", "Print a commented example");
  init->callback([&context] {
    context.action = [&context] {
      context.console.Out(kExample);
      return static_cast<int>(kSuccess);
    };
  });
  CLI::App* validate =
      verb->add_subcommand("validate", "Print a spec with its defaults, or what is wrong with it");
  auto path = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  validate->add_option("FILE", *path, "YAML or JSON; - for standard input")->required();
  validate->add_option("--set", *overrides, "a.b=c: overrides a field; may be repeated")
      ->expected(1)
      ->take_all();
  validate->callback([&context, path, overrides] {
    context.action = [&context, path, overrides] { return Validate(context, *path, *overrides); };
  });
}

}  // namespace muster::cli
