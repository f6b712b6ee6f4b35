#include "cli/text/checkpoint_text.h"

#include "absl/strings/str_cat.h"
#include "cli/output/words.h"
#include "common/checkpoint_texts.h"

namespace muster::cli {
namespace {

std::string OnNode(const v1::CheckpointStatus& status) {
  return status.node().empty() ? "" : absl::StrCat(" on ", status.node());
}

}  // namespace

std::string CheckpointText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  if (job.state() == v1::SUCCEEDED && !job.summary().checkpoint().empty()) {
    return Printable(absl::StrCat("checkpoint: ", job.summary().checkpoint(), OnNode(status)));
  }
  const std::string path = NewestCheckpointPath(status);
  if (path.empty()) return "";
  return Printable(
      absl::StrCat("newest checkpoint: step ", status.step(), ", ", path, OnNode(status)));
}

std::string BestCheckpointText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  const std::string path = BestCheckpointPath(status);
  if (path.empty()) return "";
  return Printable(absl::StrCat("best checkpoint by ", job.spec().train().checkpoint().keep_best(),
                                ": step ", status.best_step(), ", ", path, OnNode(status)));
}

std::string CheckpointFailureText(const v1::Job& job) {
  const std::string failures = CheckpointFailures(job.checkpoint());
  return failures.empty() ? "" : Printable(absl::StrCat("warning: checkpoints: ", failures));
}

std::string ResumeText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  if (status.resumed_from().empty()) {
    const bool restarted =
        job.spec().has_train() && job.generation() > 1 && job.state() == v1::RUNNING;
    return restarted
               ? "begins at step 0: there is no checkpoint; set a shorter train.checkpoint.every"
               : "";
  }
  std::string text = absl::StrCat("resumes from step ", status.resumed_step());
  if (status.resumed_job_id() != job.job_id()) {
    absl::StrAppend(&text, " of job ", status.resumed_job_id(), ", ", status.resumed_from());
  }
  return Printable(text);
}

std::string ContinuedText(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  if (status.continued_from().empty()) return "";
  return Printable(
      absl::StrCat("continued job ", status.continued_job_id(), " from ", status.continued_from()));
}

std::string CheckpointWarning(const v1::Job& job) {
  const v1::CheckpointStatus& status = job.checkpoint();
  const bool on_one_of_several = job.spec().has_train() && !status.dir().empty() &&
                                 !status.shared() && job.spec().resources().nodes().max() > 1;
  if (!on_one_of_several) return "";
  return Printable(absl::StrCat(
      "warning: checkpoints are only on ", status.node(),
      "; without it a restart begins at step 0; set train.checkpoint.dir to a directory that all "
      "nodes share, or the coordinator's --checkpoint-dir"));
}

}  // namespace muster::cli
